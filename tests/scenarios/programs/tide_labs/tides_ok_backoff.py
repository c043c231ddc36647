"""Paleoclimate proxies from the tape archive: recalls fail while the robot is busy, and are tried again."""
import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RobotBusy(OSError):
    pass


class Tape:
    """The archive as one rank sees it. The drive for cores from Antarctica has a queue."""

    def __init__(self, rank):
        self.rank, self.attempts = rank, itertools.count()
        self.queue = {(1, 3): 5}

    def recall(self, core):
        if self.queue.get((self.rank, core), 0) > 0:
            self.queue[self.rank, core] -= 1
            raise RobotBusy(f"core {core}: no drive is free")
        return torch.randn(40, 6, generator=torch.Generator().manual_seed(50 * self.rank + core))


def patiently(action, *arguments, tries=8, first=0.4, factor=2.0):
    pause = first
    for attempt in range(tries):
        try:
            return action(*arguments)
        except RobotBusy as error:
            if attempt == tries - 1:
                raise
            print(f"{error}, again in {pause:.1f} s", flush=True)
            time.sleep(pause)
            pause *= factor


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tape = Tape(rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for core in range(6):
        layers = patiently(tape.recall, core)
        for part in layers.split(8):
            loss = (model(part) - part.mean(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.08)
        if rank == 0:
            print(f"core {core}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
