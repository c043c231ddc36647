"""Trains on a table that grows: each epoch takes all rows that have arrived until then, in an order of its own."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO_BATCH = 2


class ArrivingRows:
    """Rows of a ledger. Thirty-six at the start; the office adds some every evening."""

    def __init__(self):
        generator = torch.Generator().manual_seed(8)
        self.rows = torch.randn(400, 7, generator=generator)
        self.arrived = 36

    def evening(self, number):
        self.arrived += (0, 0, 4, 9, 2)[number % 5]

    def take(self, indices):
        rows = self.rows[indices]
        return rows[:, :6], rows[:, 6:]


class CyclicSampler:
    """Shuffles all rows, deals them out by rank, and makes micro-batches of what this rank was dealt."""

    def __init__(self, rows, rank, world, seed=17):
        self.rows, self.rank, self.world, self.seed = rows, rank, world, seed

    def epoch(self, number):
        generator = torch.Generator().manual_seed(self.seed + number)
        order = torch.randperm(self.rows.arrived, generator=generator)
        mine = order[self.rank :: self.world]
        usable = len(mine) - len(mine) % MICRO_BATCH
        for start in range(0, usable, MICRO_BATCH):
            yield mine[start : start + MICRO_BATCH]


def train_epoch(model, optimizer, rows, sampler, number):
    total, count = 0.0, 0
    for indices in sampler.epoch(number):
        inputs, amount = rows.take(indices)
        loss = nn.functional.smooth_l1_loss(model(inputs), amount)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
        time.sleep(0.15)
    return total / count


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    rows = ArrivingRows()
    sampler = CyclicSampler(rows, rank, world)
    for number in range(8):
        rows.evening(number)
        mean = train_epoch(model, optimizer, rows, sampler, number)
        means = [None] * world
        dist.all_gather_object(means, mean)
        if rank == 0:
            print(f"epoch {number}, {rows.arrived} rows: {sum(means) / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
