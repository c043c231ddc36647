"""Rise forecast for the proofing chambers: every chamber has a logger, one rank reads one chamber."""
import dataclasses
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, IterableDataset


@dataclasses.dataclass
class Setup:
    window: int = 30  # minutes that the model sees
    horizon: int = 10
    batch: int = 8
    rounds: int = 4
    lr: float = 5e-3


# minutes in each chamber's log of the night shift
LOG_MINUTES = (424, 480, 480)


class ChamberLog(IterableDataset):
    """Slides over the log of one chamber (temperature, humidity, height of the dough)."""

    def __init__(self, chamber, setup):
        self.setup = setup
        gen = torch.Generator().manual_seed(40 + chamber)
        minutes = LOG_MINUTES[chamber]
        climate = torch.randn(minutes, 2, generator=gen) * 0.1 + torch.tensor([32.0, 78.0]) / 100
        height = torch.cumsum(torch.rand(minutes, 1, generator=gen) * 0.02, 0)
        self.series = torch.cat([climate, height], 1)

    def __iter__(self):
        w, h = self.setup.window, self.setup.horizon
        for start in range(0, len(self.series) - w - h + 1):
            past = self.series[start : start + w]
            yield past.flatten(), self.series[start + w + h - 1, 2]


class RiseNet(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(width, 48), torch.nn.GELU(), torch.nn.Linear(48, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def one_round(accelerator, model, optimizer, loader):
    model.train()
    seen = []
    for past, target in loader:
        time.sleep(0.03)
        loss = torch.nn.functional.smooth_l1_loss(model(past), target)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        seen.append(loss.detach())
    return torch.stack(seen).mean()


def main():
    setup = Setup()
    torch.set_num_threads(1)
    set_seed(5)
    accelerator = Accelerator(cpu=True)
    model = RiseNet(setup.window * 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=setup.lr)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = DataLoader(ChamberLog(accelerator.process_index, setup), batch_size=setup.batch, drop_last=True)
    for number in range(setup.rounds):
        mean = one_round(accelerator, model, optimizer, loader)
        means = accelerator.gather(mean.reshape(1))
        accelerator.print(f"round {number}: " + " ".join(f"{m:.4f}" for m in means.tolist()))
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()
