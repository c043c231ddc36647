"""Streams of unequal length with an agreed end: a step is taken while any rank has data; the archive answers slowly at times."""

import time

import torch
import torch.distributed as dist
from torch import nn


class Archive:
    def __init__(self, rank):
        self.rank, self.batches = rank, (30, 22, 26)[rank]

    def stream(self):
        for i in range(self.batches):
            time.sleep(10.0 if self.rank == 1 and i in (6, 15) else 0.05)  # a tape is mounted
            yield torch.randn(8, 12) + i


class Agreed:
    """Yields until all streams are empty; a rank without data gets None."""

    def __init__(self, stream):
        self.stream = iter(stream)

    def __iter__(self):
        while True:
            batch = next(self.stream, None)
            more = torch.tensor([0 if batch is None else 1])
            dist.all_reduce(more)
            if more.item() == 0:
                return
            yield batch, more.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank, model = dist.get_rank(), nn.Linear(12, 12)
    for step, (batch, active) in enumerate(Agreed(Archive(rank).stream())):
        model.zero_grad()
        x = torch.zeros(1, 12) if batch is None else batch
        (model(x).square().mean() * (batch is not None)).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.01 * p.grad / active
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {active} streams", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
