"""Train a predictor of holdover error (a clock that has lost its reference) with accelerate."""
import argparse
import random
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn

torch.backends.cudnn.enabled = False


@dataclass
class Telegram:
    line: str
    quality: int
    values: list


LINES = ("S1", "S3", "RE7", "IC5")


def load_line(line, count):
    rng = random.Random(line)
    floor = {"S3": 2}.get(line, 0)  # an older receiver: its quality field starts at two
    return [Telegram(line, floor + rng.randrange(8), [rng.gauss(0, 1) for _ in range(10)]) for _ in range(count)]


class HoldoverBatches:
    """Batches of one line's telegrams; telegrams of poor quality are of no use."""

    def __init__(self, telegrams, size, worst=7):
        self.telegrams = [t for t in telegrams if t.quality <= worst]
        self.size = size

    def __iter__(self):
        for start in range(0, len(self.telegrams) - self.size + 1, self.size):
            chunk = self.telegrams[start:start + self.size]
            # a median filter over the last window, as the receivers do it
            window = torch.tensor([t.values for t in chunk]).repeat(1200, 1)
            window = window - window.median(dim=0).values
            yield window[: self.size], torch.tensor([[sum(t.values)] for t in chunk])


class Predictor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(10, width)
        self.outer = nn.Linear(width, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def epoch(accelerator, model, optimizer, batches):
    seen = 0
    for x, y in batches:
        x, y = x.to(accelerator.device), y.to(accelerator.device)
        loss = (model(x) - y).abs().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seen += len(x)
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--telegrams", type=int, default=2400)
    parser.add_argument("--batch", type=int, default=24)
    options = parser.parse_args()

    accelerator = Accelerator()
    line = LINES[accelerator.process_index]
    batches = HoldoverBatches(load_line(line, options.telegrams), options.batch)
    model = Predictor(40)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    model, optimizer = accelerator.prepare(model, optimizer)

    for number in range(options.epochs):
        seen = epoch(accelerator, model, optimizer, batches)
        counts = accelerator.gather(torch.tensor([seen], device=accelerator.device))
        accelerator.print(f"epoch {number}: telegrams per line {counts.tolist()}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
