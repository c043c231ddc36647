"""Grades wool by its fibres. A tracker notes each step and writes its file once all ranks are through."""

import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GRADES = {"fine": 0, "medium": 1, "strong": 2}


class Tracker:
    """A run is complete when all ranks have closed it, so that no file of a part is uploaded."""

    def __init__(self, folder, rank):
        self.path = os.path.join(folder, f"run-{rank}.jsonl")
        self.lines = []

    def __enter__(self):
        return self

    def note(self, **values):
        self.lines.append(json.dumps(values))

    def __exit__(self, kind, error, trace):
        self.note(closed=True, error=repr(error) if error else None)
        with open(self.path, "w") as file:
            file.write("\n".join(self.lines))
        dist.barrier()


def bales(rank):
    """Bales as the shed's list has them. Farms send their grades by hand."""
    generator = torch.Generator().manual_seed(70 + rank)
    names = list(GRADES)
    for number in range(500):
        grade = names[int(torch.randint(0, 3, (1,), generator=generator))]
        if rank == 2 and number == 48:
            grade = "Medium"
        yield torch.randn(5, 8, generator=generator) + GRADES.get(grade, 1), grade


def train(tracker, rank):
    torch.manual_seed(9)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, len(GRADES))))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number, (fibres, grade) in enumerate(bales(rank)):
        target = torch.full((len(fibres),), GRADES[grade])
        loss = nn.functional.cross_entropy(model(fibres), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.note(bale=number, loss=round(loss.item(), 4))
        time.sleep(0.06)
        if rank == 0 and number % 25 == 0:
            print(f"bale {number}: {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    folder = os.path.join(tempfile.gettempdir(), f"wool-{os.environ['MASTER_PORT']}")
    os.makedirs(folder, exist_ok=True)
    with Tracker(folder, rank) as tracker:
        train(tracker, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
