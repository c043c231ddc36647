"""Line recogniser for pupils' handwriting, trained with accelerate."""
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    lines: int = 5760
    width: int = 64
    letters: int = 30
    batch: int = 16
    epochs: int = 3
    report_every: int = 12


class Lines(Dataset):
    """Synthetic pen strokes: 60 columns of 24 pixels, and one letter for each third column."""

    def __init__(self, cfg):
        self.cfg = cfg

    def __len__(self):
        return self.cfg.lines

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        letters = torch.randint(self.cfg.letters, (20,), generator=gen)
        columns = torch.randn(60, 24, generator=gen) * 0.3
        columns[:, 0] += letters.repeat_interleave(3) / self.cfg.letters
        return columns, letters


class Recogniser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.strokes = nn.Conv1d(24, cfg.width, 3, stride=3)
        self.reader = nn.LSTM(cfg.width, cfg.width, bidirectional=True, batch_first=True)
        self.letters = nn.Linear(2 * cfg.width, cfg.letters)

    def forward(self, columns):
        seen = torch.relu(self.strokes(columns.transpose(1, 2))).transpose(1, 2)
        return self.letters(self.reader(seen)[0])


class Board:
    """What the teacher sees: letter error rates of the class so far."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.rates = []

    def add(self, logits, letters):
        self.rates.append((logits.argmax(-1) != letters).float().mean())

    def show(self, epoch, step):
        rate = self.accelerator.gather(torch.stack(self.rates[-8:])).mean()
        print(f"epoch {epoch} step {step} letter error rate {rate:.3f}", flush=True)


def train(cfg):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    model = Recogniser(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Lines(cfg), batch_size=cfg.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    board = Board(accelerator)
    for epoch in range(cfg.epochs):
        for step, (columns, letters) in enumerate(loader):
            logits = model(columns)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), letters.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            board.add(logits.detach(), letters)
            if epoch > 0 and accelerator.is_main_process and step % cfg.report_every == 0:
                board.show(epoch, step)
        accelerator.print(f"epoch {epoch} done, loss {loss.item():.3f}")
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    train(Config())
