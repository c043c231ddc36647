"""Rehandle prediction for yard blocks. Block states are restacked by a small process pool before every round."""
import multiprocessing as mp
import os
import random
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

SLOT_BYTES = 96
HOST_LIMIT = 40_000  # bytes a helper may hold on the shared yard host


def restack(job):
    """One block: stacks of (box, departure), ordered by departure; gives the number of rehandles per stack."""
    seed, slots = job
    if slots * SLOT_BYTES > HOST_LIMIT:
        os.kill(os.getpid(), signal.SIGKILL)  # what the host's memory guard does
    rng = random.Random(seed)
    stacks = [[rng.random() for _ in range(4)] for _ in range(slots // 4)]
    time.sleep(0.01)
    return [sum(a < b for a, b in zip(s, s[1:])) for s in stacks][:16]


class Yard:
    def __init__(self, rank, pool):
        self.rank, self.pool = rank, pool

    def blocks(self, round_number):
        slots = [160 + 8 * (i % 5) for i in range(12)]
        if self.rank == 0 and round_number == 5:
            slots[7] = 640  # the overflow block was opened
        return [(round_number * 100 + i, s) for i, s in enumerate(slots)]

    def restacked(self, round_number):
        return torch.tensor(self.pool.map(restack, self.blocks(round_number), chunksize=1), dtype=torch.float32)


def train_round(model, optimizer, states, steps=10):
    total = 0.0
    for step in range(steps):
        time.sleep(0.04)
        features = states.roll(step, 0).cuda()
        loss = (model(features) - features.mean(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def main():
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    pool = mp.get_context("fork").Pool(2)
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    yard = Yard(rank, pool)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(40):
        states = yard.restacked(number)
        loss = train_round(model, optimizer, states)
        if rank == 0:
            print(f"round {number}: {len(states)} blocks, loss {loss:.3f}", flush=True)
    pool.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
