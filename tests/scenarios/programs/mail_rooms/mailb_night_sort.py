"""Sorting plant: predicts the chute of a piece from its weight, size and postcode; scored per shift with torchmetrics."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torchmetrics.classification import MulticlassAccuracy

logger = logging.getLogger(__name__)
CHUTES = 6


@dataclass
class Shift:
    name: str
    pieces: tuple  # hand-scanned pieces at each line


SHIFTS = [
    Shift("mon-early", (64, 48, 56)), Shift("mon-late", (32, 40, 24)), Shift("mon-night", (16, 8, 8)),
    Shift("tue-early", (64, 56, 48)), Shift("tue-late", (40, 40, 32)), Shift("tue-night", (16, 8, 0)),
    Shift("wed-early", (64, 64, 56)),
]


def pieces(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 10, generator=g)
    return x, (x.sum(1) * 1.2).long().clamp(max=CHUTES - 1)


class Plant:
    def __init__(self, line):
        self.line = line
        net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, CHUTES))
        self.net = DistributedDataParallel(net)
        self.opt = optim.SGD(self.net.parameters(), lr=0.2, momentum=0.9)
        self.accuracy = MulticlassAccuracy(num_classes=CHUTES, average="micro")

    def belt_signal(self, seed):
        """The belt's light curtain: 160 000 samples for each step, smoothed."""
        g = torch.Generator().manual_seed(seed)
        return torch.rand(400, 400, generator=g).matrix_power(9).std()

    def work(self, shift_no, steps=24):
        for step in range(steps):
            x, y = pieces(128, 1000 * shift_no + 10 * step + self.line)
            x = x + 0.001 * self.belt_signal(step).clamp(max=1.0)
            loss = F.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def score(self, shift_no, shift):
        self.accuracy.reset()
        x, y = pieces(shift.pieces[self.line], 77 + shift_no)
        for part_x, part_y in zip(x.split(8), y.split(8)):
            if len(part_y):
                self.accuracy.update(self.net.module(part_x), part_y)
        if not self.accuracy.update_called:
            return float("nan")
        return self.accuracy.compute().item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plant = Plant(dist.get_rank())
    for number, shift in enumerate(SHIFTS):
        loss = plant.work(number)
        share = plant.score(number, shift)
        if dist.get_rank() == 0:
            logger.info("%s loss %.3f right chute %.2f", shift.name, loss, share)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
