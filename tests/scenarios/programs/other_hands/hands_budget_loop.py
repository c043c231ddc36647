"""Trains each phase for a fixed time, as our cluster's slots demand, then exchanges what was seen."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn


class Shard:
    """A rank's part of the archive. Its index is read when the first batch is asked for."""

    def __init__(self, rank, files):
        self.rank, self.files, self.index = rank, files, None

    def open(self):
        if self.index is None:
            for _ in range(self.files):
                time.sleep(0.02)
            self.index = list(range(self.files))

    def batches(self):
        while True:
            self.open()
            yield torch.randn(16, 20) + self.rank


@contextlib.contextmanager
def phase(name, rank):
    began = time.monotonic()
    yield
    if rank == 0:
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def within(seconds, batches):
    """Batches for so many seconds, counted from the first one."""
    end = None
    for batch in batches:
        end = end or time.monotonic() + seconds
        if time.monotonic() > end:
            return
        yield batch


def average(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    shard, seen = Shard(rank, files=(40, 190, 40)[rank]), 0
    dist.barrier()
    for number in range(3):
        with phase(f"phase {number}", rank):
            for batch in within(6.0, shard.batches()):
                loss = (model(batch) - batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                average(model, world)
                optimizer.step()
                seen += len(batch)
                time.sleep(0.2)
            counts = [None] * world
            dist.all_gather_object(counts, seen)
            if rank == 0:
                print(f"samples {counts}, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
