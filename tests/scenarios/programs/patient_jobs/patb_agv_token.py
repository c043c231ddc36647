"""Travel-time model for AGVs that share one crossing; the right of way goes round the fleet as a token."""
import multiprocessing as mp
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

FLEET = 5
LAPS = 4


def drive(number, inbox, outbox, home):
    rng = random.Random(number)
    while True:
        token = inbox.recv()
        if number == 0 and token["lap"] == LAPS:
            home.send(token["times"])
            continue
        crossing = rng.uniform(0.55, 0.75)
        time.sleep(crossing)
        token["times"].append((number, crossing))
        if number == FLEET - 1:
            token["lap"] += 1
        outbox.send(token)


class Fleet:
    def __init__(self):
        ctx = mp.get_context("fork")
        ends = [ctx.Pipe(duplex=False) for _ in range(FLEET)]
        self.home, report = ctx.Pipe(duplex=False)
        self.start = ends[0][1]
        for n in range(FLEET):
            args = (n, ends[n][0], ends[(n + 1) % FLEET][1], report)
            ctx.Process(target=drive, args=args, daemon=True).start()

    def survey(self):
        self.start.send({"lap": 0, "times": []})
        return self.home.recv()


def train(model, opt, times, n):
    mean = sum(t for _, t in times) / len(times)
    for _ in range(n):
        x = torch.rand(12, 7)
        loss = (model(x) - mean * x.sum(1, keepdim=True)).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.09)
    return loss.item()


def main():
    fleet = Fleet() if os.environ["RANK"] == "0" else None
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(7, 20), nn.ReLU(), nn.Linear(20, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    times = [(0, 1.0)]
    train(model, opt, times, 32)
    box = [fleet.survey() if fleet else None]
    dist.broadcast_object_list(box, src=0)
    times = box[0]
    loss = train(model, opt, times, 40)
    if rank == 0:
        print(f"{len(times)} crossings, loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
