"""Trains the zone model of the avalanche bulletin; metrics go out by a side channel every two seconds."""
import collections
import json
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

# tree-line height by zone, from the 2019 survey
TREE_LINE = {f"{country}{n}": 1800 + 40 * n + 15 * i
             for i, (country, zones) in enumerate({"A": 8, "I": 8, "S": 6}.items()) for n in range(zones)}


class MetricsSender(threading.Thread):
    def __init__(self, path, period=2.0):
        super().__init__(name="metrics")
        self.path, self.period = path, period
        self.rows = collections.deque()
        self.closed = threading.Event()

    def put(self, **row):
        self.rows.append({"t": time.time(), **row})

    def run(self):
        while not self.closed.wait(self.period):
            with open(self.path, "a") as out:
                while self.rows:
                    out.write(json.dumps(self.rows.popleft()) + "\n")

    def close(self):
        self.closed.set()
        self.join()


def reports(country, day):
    """Observer reports of a day: aspect histogram and the zone that they were sent from."""
    zone = f"{country}{(day // 9) % 7}"
    g = torch.Generator().manual_seed(day)
    terrain = torch.rand(16, 72, 72, generator=g)
    for _ in range(25):
        terrain = terrain.cumsum(1).sin()
    return zone, terrain.flatten(1)[:, :36]


def scale(zone, x):
    return x * (2400 - TREE_LINE[zone]) / 1000


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat.div_(world)
    start = 0
    for p in model.parameters():
        p.grad.copy_(flat[start:start + p.numel()].view_as(p))
        start += p.numel()


def run(rank, world, sender):
    country = sorted({z[0] for z in TREE_LINE})[rank]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(36, 40), nn.Tanh(), nn.Linear(40, 5)).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for day in range(120):
        zone, x = reports(country, day)
        x = scale(zone, x).cuda()
        level = torch.full((len(x),), day % 5).cuda()
        loss = nn.functional.cross_entropy(model(x), level)
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
        sender.put(day=day, zone=zone, loss=loss.item())


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    sender = MetricsSender(f"/tmp/traila_bulletin_{os.getpid()}.jsonl")
    sender.start()
    run(rank, dist.get_world_size(), sender)
    sender.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
