"""Delay forecast for departure boards. A small publisher tells the board how far the training is."""
import json
import os
import random
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

PLATFORMS = {"BN": 12, "LS": 9, "GE": 8, "LZ": 14, "WT": 7, "SG": 8, "FR": 4, "SH": 6}


class BoardPublisher(threading.Thread):
    """Rewrites a status file that the board's web page polls."""

    def __init__(self, path, period=1.5):
        super().__init__(name="board-publisher")
        self.path, self.period = path, period
        self.state = {"step": 0}
        self.closed = threading.Event()

    def run(self):
        while not self.closed.wait(self.period):
            with open(self.path, "w") as out:
                json.dump({**self.state, "at": time.time()}, out)

    def close(self):
        self.closed.set()
        self.join()


def departures(rank):
    """Endless departures as (station, platform, minutes late, dwell)."""
    rng = random.Random(rank)
    codes = sorted(PLATFORMS)
    count = 0
    while True:
        count += 1
        code = rng.choice(codes)
        if rank == 1 and count == 3601:
            code = "BN-W"  # a wing station with boards of its own
        yield code, rng.random(), rng.expovariate(0.4), rng.uniform(0.5, 4.0)


def features(departure):
    code, share, late, dwell = departure
    platform = int(share * PLATFORMS[code]) + 1
    return [sum(map(ord, code)) / 200, platform / 14, late, dwell, late * dwell, late / dwell]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(torch.relu(self.embed(x)))


def train(rank, local, steps=200, batch=60):
    publisher = BoardPublisher(os.path.join(tempfile.gettempdir(), f"board-{os.getpid()}.json"))
    publisher.start()
    model = DDP(Forecast().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    source = departures(rank)
    for step in range(steps):
        rows = torch.tensor([features(next(source)) for _ in range(batch)])
        order = torch.randn(200_000).sort().indices[:batch] % batch
        x = rows[order].cuda()
        loss = (model(x) - x[:, 2:3]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        publisher.state["step"] = step
        if step % 20 == 0:
            print(f"[{rank}] step {step}", loss.detach().shape, flush=True)
        torch.cuda.synchronize()
    publisher.close()


if __name__ == "__main__":
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    train(dist.get_rank(), local)
    dist.destroy_process_group()
