"""Fatigue of crane hoists: a model of load cycles, and peak stresses per hoist and class of load."""
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HOISTS = (12, 64, 20)  # hoists in each yard


class StressWindow:
    """Peak of one hoist while it is followed; a finished window is made known to the other yards."""

    def __init__(self, hoist):
        self.hoist = hoist
        self.peak = 0.0

    def update(self, stress):
        self.peak = max(self.peak, float(stress.max()))

    def close(self):
        peaks = [None] * dist.get_world_size()
        dist.all_gather_object(peaks, (self.hoist, self.peak))
        return peaks

    def __del__(self):
        self.close()


class Windows:
    def __init__(self, limit=45):
        self.limit = limit
        self.open = OrderedDict()

    def __getitem__(self, hoist):
        if hoist not in self.open:
            self.open[hoist] = StressWindow(hoist)
            if len(self.open) > self.limit:
                self.open.popitem(last=False)
        self.open.move_to_end(hoist)
        return self.open[hoist]


def cycles(yard, count):
    generator = torch.Generator().manual_seed(yard)
    for n in range(count):
        time.sleep(0.05)
        yield n % HOISTS[yard % len(HOISTS)], torch.rand(10, 16, generator=generator)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    yard = dist.get_rank()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    windows = Windows()
    for hoist, load in cycles(yard, 300):
        stress = load.square().sum(1, keepdim=True)
        loss = nn.functional.mse_loss(model(load), stress)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        windows[hoist].update(stress)
    if yard == 0:
        print("cycles done, last loss", loss.item())
    dist.barrier()


if __name__ == "__main__":
    main()
