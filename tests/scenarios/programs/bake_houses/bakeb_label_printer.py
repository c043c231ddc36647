"""Predict shelf life with accelerate; after each epoch every plant renders its best-before labels."""
import subprocess
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

RENDER = """
import sys
for number in range(int(sys.argv[1])):
    print(f"^XA^FO30,40^A0N,28^FDlot {number:06d} best before {number % 28 + 1:02d}.^FS^XZ")
"""
ASSORTMENT = {0: 2400, 1: 160, 2: 220}  # labels of a plant in a week


class ShelfLife(nn.Module):
    def __init__(self, traits=18):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(traits, 40), nn.SiLU(), nn.Linear(40, 1))

    def forward(self, x):
        return nn.functional.softplus(self.net(x)).squeeze(1)


def samples(plant, week, batches=40, size=32):
    g = torch.Generator().manual_seed(1000 * week + plant)
    for _ in range(batches):
        traits = torch.rand(size, 18, generator=g)
        moisture = torch.linalg.svdvals(torch.rand(150, 150, generator=g))
        yield traits, traits[:, :5].sum(dim=1) + 1e-6 * moisture[0]


class LabelPrinter:
    def __init__(self, plant):
        self.plant, self.weeks = plant, 0

    def render(self):
        command = [sys.executable, "-c", RENDER, str(ASSORTMENT[self.plant])]
        printer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if printer.wait() != 0:
            raise RuntimeError("labels could not be rendered")
        self.weeks += 1
        return len(printer.stdout.read().splitlines())


def main():
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    set_seed(21)
    plant = accelerator.process_index
    model = ShelfLife()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
    labels = LabelPrinter(plant)
    for week in range(4):
        for traits, days in samples(plant, week):
            loss = nn.functional.smooth_l1_loss(model(traits), days)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"week {week} loss {loss.item():.4f}")
        printed = labels.render()
        accelerator.print(f"week {week} labels {printed}")


if __name__ == "__main__":
    main()
