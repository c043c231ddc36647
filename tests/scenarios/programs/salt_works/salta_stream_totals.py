"""Mass balance of a desalination plant: salt and water are summed over the trains, each in a group of its own."""
import argparse
import os
import random
from typing import NamedTuple

import torch
import torch.distributed as dist


class Stream(NamedTuple):
    name: str
    period: int  # cycles between two samples of the autosampler
    group: dist.ProcessGroup


def make_streams():
    ranks = list(range(dist.get_world_size()))
    return [Stream("permeate", 8, dist.new_group(ranks)), Stream("concentrate", 8, dist.new_group(ranks))]


class Laboratory:
    """Knows how long ago the last sample of a stream was taken at this train."""

    def __init__(self, train):
        self.train = train
        self.taken = {"permeate": 0, "concentrate": 0}

    def update(self, cycle, streams):
        for stream in streams:
            drained = self.train == 2 and stream.name == "concentrate" and cycle > 240
            if cycle % stream.period == 0 and not drained:
                self.taken[stream.name] = cycle

    def age(self, name, cycle):
        return cycle - self.taken[name]


class Balance:
    def __init__(self, train, streams):
        self.train, self.streams = train, streams
        self.lab = Laboratory(train)
        self.random = random.Random(train)
        self.totals = {}

    def simulate(self, salt):
        """Concentration along the vessel, element by element."""
        profile = torch.full((2000,), salt, dtype=torch.float64)
        for _ in range(500):
            profile = profile + 0.001 * torch.sin(profile)
        return float(profile.mean())

    def total(self, stream, amount):
        value = torch.full((16,), amount, dtype=torch.float64, device="cuda")
        dist.all_reduce(value, group=stream.group)
        return value.cpu()[0].item()

    def cycle(self, number):
        self.lab.update(number, self.streams)
        salt = self.simulate(30 + self.random.random())
        # oldest sample first, so that its correction is known to the other
        for stream in sorted(self.streams, key=lambda s: -self.lab.age(s.name, number)):
            share = salt if stream.name == "concentrate" else salt * 0.02
            self.totals[stream.name] = self.total(stream, share)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=2000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    balance = Balance(dist.get_rank(), make_streams())
    for number in range(args.cycles):
        balance.cycle(number)
        if number % 50 == 0 and dist.get_rank() == 0:
            print(f"cycle {number}: {balance.totals}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
