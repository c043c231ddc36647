# Lumen maintenance of discharge lamps: every rank reads the burn logs of one lamp store, and keeps the readings that it still
# has to write to the store's ledger in a small pool.
import argparse
import collections
import os
import random

import torch
import torch.distributed as dist


class LedgerPool:
    """Readings on their way to the ledger. A slot is free again when all stores have written up to the same entry."""

    def __init__(self, slots, device):
        self.slots = slots
        self.device = device
        self.entries = collections.deque()
        self.written = 0

    def put(self, reading):
        if reading["hours"] > reading["rated_hours"]:
            return False  # lamps past their rated life belong to the recycling list
        if len(self.entries) >= self.slots:
            self.entries.popleft()
        self.entries.append(reading)
        return True

    def settle(self):
        if not self.entries:
            return self.written
        done = torch.tensor([self.written + len(self.entries)], device=self.device)
        dist.all_reduce(done, op=dist.ReduceOp.MIN)
        upto = int(done.item())
        while self.entries and self.written < upto:
            self.entries.popleft()
            self.written += 1
        return self.written


def burn_log(store, length):
    source = random.Random(900 + store)
    rated = [1200, 900, 750, 1500][store]
    hours = [0.0] * 4
    for tick in range(length):
        lamp = tick % 4
        hours[lamp] += source.uniform(22, 26)
        yield {"lamp": lamp, "hours": hours[lamp], "rated_hours": rated, "flux": 9000 - hours[lamp] * source.uniform(1, 2)}


def curve(reading, samples):
    """Depreciation curve around one reading, on the host."""
    t = torch.linspace(0, reading["rated_hours"], samples)
    for _ in range(6):
        t = t + torch.exp(-t / (reading["hours"] + 1)).cumsum(0) / samples
    return t[:: samples // 32][:32]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=260)
    parser.add_argument("--samples", type=int, default=400_000)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.set_num_threads(1)
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group(backend="nccl", device_id=device)
    rank = dist.get_rank()
    pool = LedgerPool(8, device)
    shutter = torch.tensor([100], dtype=torch.int64, device=device)
    weights = torch.zeros(32, 32, device=device)
    for tick, reading in enumerate(burn_log(rank, args.length)):
        sample = curve(reading, args.samples).to(device)
        weights += torch.outer(sample, sample)
        pool.put(reading)
        written = pool.settle()
        if rank == 0:
            shutter.fill_(100 + tick % 7)
        dist.broadcast(shutter, src=0)
        opening = int(shutter.item())
        if tick % 25 == 0:
            print(f"[store {rank}] tick {tick} ledger {written} shutter {opening}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
