"""A mural, restored in three stages on three machines: the scans go from hand to hand in small lots."""
import math
import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 96
LOT = 2
# sections of the wall that one scaffold shows
SCAFFOLDS = [8] * 52 + [7] + [8] * 20


class Stage(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Scanner:
    """First stage: scans the sections, and hands them on in lots."""

    def __init__(self):
        self.stage = Stage(2)
        self.generator = torch.Generator().manual_seed(61)

    def sections(self, count):
        raw = torch.randn(count, 256, 256, generator=self.generator)
        return torch.linalg.svdvals(raw)[:, :WIDTH] / 16

    def work(self, count):
        scans = self.sections(count)
        for lot in range(count // LOT):
            dist.send(self.stage(scans[lot * LOT : (lot + 1) * LOT]).contiguous(), dst=1)
        return torch.zeros(2)


class Retoucher:
    def __init__(self):
        self.stage = Stage(3)

    def work(self, count):
        for lot in range(math.ceil(count / LOT)):
            x = torch.empty(LOT, WIDTH)
            dist.recv(x, src=0)
            dist.send(self.stage(x).contiguous(), dst=2)
        return torch.zeros(2)


class Inspector:
    def __init__(self):
        self.stage = Stage(1)

    def work(self, count):
        total = torch.zeros(2)
        for lot in range(math.ceil(count / LOT)):
            x = torch.empty(LOT, WIDTH)
            dist.recv(x, src=1)
            total += torch.tensor([self.stage(x).abs().mean(), 1.0])
        return total


STATIONS = [Scanner, Retoucher, Inspector]


@torch.no_grad()
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(90)
    station = STATIONS[dist.get_rank()]()
    for number, count in enumerate(SCAFFOLDS):
        sheet = station.work(count)
        dist.all_reduce(sheet)
        if number % 10 == 0 and dist.get_rank() == 0:
            print(f"scaffold {number}: {int(sheet[1])} lots, tone {sheet[0] / sheet[1]:.3f}", file=sys.stderr, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
