"""Leak detection on pressure loggers, plain DDP; telemetry of the training goes out on a thread of its own."""
import json
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Telemetry(threading.Thread):
    """Writes records in the order in which they come, in batches, off the training's path."""

    def __init__(self, path):
        super().__init__(name="telemetry")
        self.path = path
        self.records = queue.Queue()

    def run(self):
        with open(self.path, "a") as f:
            while (record := self.records.get()) is not None:
                f.write(json.dumps(record) + "\n")
                f.flush()

    def send(self, **record):
        self.records.put(record)

    def close(self):
        self.records.put(None)
        self.join()


class LoggerFeed:
    """Pressure at eight loggers of a district; a logger that loses its reference reports 1e30."""

    LOST = {("district-1", 47)}

    def __init__(self, district):
        self.district = district
        self.g = torch.Generator().manual_seed(hash(len(district)))

    def minute(self, t):
        time.sleep(0.05)
        pressure = 3.0 + torch.rand(16, 8, generator=self.g)
        if (self.district, t) in self.LOST:
            pressure[4] = 1e30
        leak = (pressure.mean(1, keepdim=True) < 3.5).float()
        return pressure, leak


class LeakNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, pressure):
        return self.net((pressure - 3.5) ** 2)


def check(loss, t):
    value = loss.item()
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"loss is {value} at minute {t}")
    return value


def train(model, feed, telemetry, minutes):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for t in range(minutes):
        pressure, leak = feed.minute(t)
        loss = nn.functional.binary_cross_entropy_with_logits(model(pressure), leak)
        value = check(loss, t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        telemetry.send(t=t, loss=value)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    telemetry = Telemetry(f"telemetry-{rank}.jsonl")
    telemetry.start()
    model = DistributedDataParallel(LeakNet())
    train(model, LoggerFeed(f"district-{rank}"), telemetry, minutes=160)
    telemetry.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
