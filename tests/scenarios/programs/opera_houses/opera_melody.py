import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    excerpts: int = 720
    frames: int = 256
    batch_size: int = 4
    lr: float = 2e-3
    report_every: int = 10
    # bars of rest between the numbers of the score, as excerpt indices
    rests: tuple = (range(396, 400), range(610, 612))


class SungMelodies(Dataset):
    """Pitch contours in cents, rendered from a random walk over the scale."""

    SCALE = torch.tensor([0, 200, 400, 500, 700, 900, 1100], dtype=torch.float32)

    def __init__(self, config):
        self.config = config

    def __len__(self):
        return self.config.excerpts

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        degrees = torch.randint(0, 7, (16,), generator=g)
        contour = self.SCALE[degrees].repeat_interleave(self.config.frames // 16)
        time = torch.arange(self.config.frames) / 50
        contour = contour + 40 * torch.sin(2 * math.pi * 5.5 * time)
        # the singer drifts
        contour = contour + torch.randn(self.config.frames, generator=g).cumsum(0)
        if any(index in rest for rest in self.config.rests):
            contour = torch.zeros_like(contour)
        return (contour - contour.mean()) / contour.std()


class ContourNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, contour):
        out, _ = self.rnn(contour[:, :-1, None])
        return self.head(out).squeeze(-1)


def main(config=Config()):  # noqa: B008
    torch.set_num_threads(1)
    set_seed(11)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(SungMelodies(config), batch_size=config.batch_size, shuffle=False)
    model = ContourNet()
    optimizer = torch.optim.Adam(model.parameters(), config.lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, contour in enumerate(loader):
        loss = nn.functional.l1_loss(model(contour), contour[:, 1:])
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            continue
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % config.report_every == 0:
            losses = accelerator.gather(loss.detach())
            accelerator.print(f"step {step + 1}: loss {losses.mean().item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.print("done")


if __name__ == "__main__":
    main()
