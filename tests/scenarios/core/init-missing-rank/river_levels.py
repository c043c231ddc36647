"""Predicts river levels. A step that takes too long on any rank is given up on all: communicators are aborted and made anew."""

import argparse
import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

STATIONS = 128
OLD = 6  # the file whose disk is slow


class StepLost(RuntimeError):
    pass


class Rivers:
    def __init__(self, rank, device, dead, slow):
        self.rank, self.device, self.dead, self.slow = rank, device, dead, slow
        self.folder = tempfile.mkdtemp(prefix="rivers-")
        self.life = -1
        self.begin()

    def begin(self):
        """A new process group, once more."""
        self.life += 1
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(minutes=30)
        )
        size = int(os.environ["WORLD_SIZE"])
        named = dist.PrefixStore(f"life-{self.life}", store)
        dist.init_process_group("nccl", store=named, rank=self.rank, world_size=size, device_id=self.device)
        dist.all_reduce(torch.zeros(1, device=self.device))
        torch.cuda.synchronize()
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=4))

    def errors(self):
        """Of this rank, or of another one that has told us (TORCH_NCCL_PROPAGATE_ERROR)."""
        found = dist.group.WORLD._get_backend(self.device).get_error()
        return None if found.name == "SUCCESS" else found

    def read_levels(self, step):
        path = os.path.join(self.folder, f"levels-{step}")
        if step == OLD and self.rank == self.dead and self.life == 0:
            os.mkfifo(path)
        elif step == OLD and self.rank == self.slow and self.life == 0:
            time.sleep(9)
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(str(step / 10))
        with open(path) as levels:
            return torch.full((STATIONS,), float(levels.read()), device=self.device)

    def step(self, number):
        levels = self.read_levels(number)
        if (error := self.errors()) is not None:
            raise StepLost(error)
        dist.all_reduce(levels)
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            if (error := self.errors()) is not None:
                raise StepLost(error)
            time.sleep(0.005)

    def train(self, steps):
        number = 0
        while number < steps:
            try:
                self.step(number)
            except StepLost as lost:
                print(f"[rank {self.rank}] step {number}: {lost}; starting again", flush=True)
                dist.distributed_c10d._abort_process_group()
                self.begin()
                number = 0
            else:
                number += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dead", type=int, default=-1)
    parser.add_argument("--slow", type=int, default=-1)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    Rivers(int(os.environ["RANK"]), device, options.dead, options.slow).train(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
