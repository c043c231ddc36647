"""Pilot training: predicts check-ride grades and archives the training records in the background after each phase."""
import argparse
import bz2
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Archive:
    """Packs the records of the school and notes the sizes of all schools in the index."""

    def __init__(self, school):
        self.school = school
        self.index = []
        self.worker = None

    def submit(self, records):
        if self.worker is not None:
            self.worker.join()
        self.worker = threading.Thread(target=self._pack, args=(records,), daemon=True)
        self.worker.start()

    def _pack(self, records):
        packed = bz2.compress(records.numpy().tobytes(), 9)
        size = torch.tensor([len(packed)], dtype=torch.int64)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, size)
        self.index.append([int(s) for s in sizes])


class School:
    def __init__(self, name, seed):
        self.name = name
        self.rng = torch.Generator().manual_seed(seed)

    def lessons(self, count):
        for _ in range(count):
            flown = torch.randn(128, 18, generator=self.rng)  # hours, landings, instrument time, ...
            yield flown, flown[:, :6].mean(dim=1, keepdim=True).sigmoid()

    def records(self, phase):
        size = 200_000
        if self.name == "Jerez" and phase == 2:  # video debriefs of the multi-crew course
            size = 60_000_000
        return torch.randint(0, 200, (size,), dtype=torch.uint8, generator=self.rng)


class Course:
    def __init__(self, args):
        self.args, self.rank = args, dist.get_rank()
        self.school = School(args.schools[self.rank], seed=self.rank + 70)
        self.archive = Archive(self.school.name)
        self.model = DDP(nn.Sequential(nn.Linear(18, 96), nn.SELU(), nn.Linear(96, 1), nn.Sigmoid()))
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=2e-3)

    def phase(self, number):
        last = 0.0
        for flown, grade in self.school.lessons(self.args.lessons):
            loss = nn.functional.l1_loss(self.model(flown), grade)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            last = loss.item()
        self.archive.submit(self.school.records(number))
        time.sleep(self.args.debrief)
        dist.barrier()
        if self.rank == 0:
            print(f"phase {number}: error {last:.4f}, archived {self.archive.index}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=6)
    parser.add_argument("--lessons", type=int, default=120)
    parser.add_argument("--debrief", type=float, default=0.8)
    parser.add_argument("--schools", nargs="+", default=["Oxford", "Phoenix", "Jerez"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    course = Course(args)
    for number in range(args.phases):
        course.phase(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
