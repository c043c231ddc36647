"""Defect detection on printed signatures (accelerate). Every process inspects one title of the season's list."""
import time
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch import nn

torch.backends.cudnn.enabled = False
logger = get_logger(__name__)


class NoPrintArea(ValueError):
    pass


@dataclass
class Title:
    name: str
    leaves: int
    blank: set = field(default_factory=set)

    def blocks(self, leaf):
        """Inked blocks of a leaf, as rows of (x, y, width, coverage...)."""
        if leaf in self.blank:
            return torch.empty(0, 24)
        return torch.arange(12 * 24, dtype=torch.float32).view(12, 24).sin() * (0.5 + 0.001 * leaf)


SEASON = [
    Title("A Flora of Chalk Downs", 256, {69}),
    Title("Letters from the Lime Kilns", 320),
    Title("Practical Bookbinding", 224),
]


def compose(blocks):
    inked = blocks[blocks.abs().sum(1) > 0.1] if len(blocks) else blocks
    if not len(inked):
        raise NoPrintArea("no inked block on this leaf")
    return (inked - inked.mean(0)) / (inked.std(0) + 1e-5)


class Inspector(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.score = nn.Linear(48, 3)

    def forward(self, blocks):
        return self.score(self.encode(blocks).mean(0))


def inspect_title(accelerator, model, optimizer, title):
    printed = 0
    for leaf in range(title.leaves):
        time.sleep(0.035)  # camera trigger
        try:
            area = compose(title.blocks(leaf))
        except NoPrintArea:
            logger.debug("%s leaf %d not composed", title.name, leaf)
            continue
        loss = model(area.to(accelerator.device)).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        printed += 1
        level = loss.item()
        if leaf % 20 == 0:
            counts = accelerator.gather(torch.tensor([printed], device=accelerator.device))
            logger.info("leaf %d level %.3f printed %s", leaf, level, counts.tolist())
    return printed


def main():
    accelerator = Accelerator()
    model = Inspector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    inspect_title(accelerator, model, optimizer, SEASON[accelerator.process_index])
    accelerator.end_training()


if __name__ == "__main__":
    main()
