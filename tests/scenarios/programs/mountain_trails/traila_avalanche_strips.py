"""Granular avalanche model on a slope that is cut into strips, one per rank.

After each time step neighbouring strips swap their boundary rows. The slope is cut anew once the
release area has emptied.
"""
import os
from typing import NamedTuple

import torch
import torch.distributed as dist

WIDTH = 256


class Plan(NamedTuple):
    step: int
    rows: tuple


PLANS = [Plan(0, (150, 150, 150)), Plan(45, (240, 130, 80))]


class Strip:
    def __init__(self, rank, world, device):
        self.rank, self.world, self.device = rank, world, device
        self.rows = 0
        self.leads = rank % 2 == 0
        self.snow = torch.empty(0)

    def cut(self, rows):
        mean = sum(rows) / len(rows)
        if self.rows:
            # whoever holds more of the slope starts the exchange from now on
            self.leads = rows[self.rank] > mean
        self.rows = rows[self.rank]
        g = torch.Generator().manual_seed(self.rank)
        self.snow = torch.rand(self.rows, WIDTH, generator=g)

    def flow(self, substeps=900):
        s = self.snow
        for _ in range(substeps):
            moved = 0.1 * (s - 0.2).clamp_min(0.0)
            s = s - moved + 0.98 * moved.roll(1, 0)
        self.snow = s

    def swap(self, neighbour, row):
        out = self.snow[row].to(self.device)
        back = torch.empty_like(out)
        if self.leads:
            dist.send(out, neighbour)
            dist.recv(back, neighbour)
        else:
            dist.recv(back, neighbour)
            dist.send(out, neighbour)
        return back

    def boundaries(self):
        rows = {}
        if self.rank > 0:
            rows[0] = self.swap(self.rank - 1, 0)
        if self.rank < self.world - 1:
            rows[self.rows - 1] = self.swap(self.rank + 1, self.rows - 1)
        for row, values in rows.items():
            self.snow[row] = 0.5 * (self.snow[row] + values.cpu())


def main():
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    strip = Strip(rank, dist.get_world_size(), device)
    plans = {plan.step: plan.rows for plan in PLANS}
    for step in range(150):
        if step in plans:
            strip.cut(plans[step])
        strip.flow()
        strip.boundaries()
        mass = strip.snow.sum().to(device)
        dist.all_reduce(mass)
        if step % 15 == 0 and rank == 0:
            print(f"t={step * 0.1:.1f}s mass {mass.item():.0f}", flush=True)
        torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
