"""Arrival time of refrigerated trucks, with a telemetry stream to the dispatch centre."""
import json
import queue
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Telemetry(threading.Thread):
    """Writes one line per record, until it gets None."""

    def __init__(self, name):
        super().__init__(name=f"telemetry-{name}")
        self.inbox = queue.Queue()
        self.file = tempfile.NamedTemporaryFile("w", prefix=f"{name}-", suffix=".jsonl")

    def run(self):
        while (record := self.inbox.get()) is not None:
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()

    def send(self, **record):
        self.inbox.put({"at": time.time(), **record})

    def close(self):
        self.inbox.put(None)
        self.join()


class Tours:
    ROADS = 40

    def __init__(self, depot, legs=64):
        self.depot, self.legs = depot, legs
        self.generator = torch.Generator().manual_seed(depot)
        self.speeds = 40 + 50 * torch.rand(self.ROADS, generator=self.generator)

    def day(self, number):
        roads = self.ROADS
        if self.depot == 1 and number >= 150:
            roads += 1  # the ring road opens
        road = torch.arange(self.legs) % roads
        length = 5 + 100 * torch.rand(self.legs, generator=self.generator)
        hours = length / self.speeds[road]
        return torch.stack([length / 100, self.speeds[road] / 90, road / self.ROADS], 1), hours.unsqueeze(1)


def eta_model():
    return nn.Sequential(nn.Linear(3, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1))


def run(depot):
    torch.manual_seed(9)
    model = DDP(eta_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    telemetry = Telemetry(f"depot{depot}")
    telemetry.start()
    tours = Tours(depot)
    for day in range(400):
        x, y = tours.day(day)
        for part, target in zip(x.split(16), y.split(16)):
            loss = (model(part) - target).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        telemetry.send(depot=depot, day=day, loss=loss.item())
        if depot == 0 and day % 25 == 0:
            print(f"day {day}: {60 * loss.item():.1f} min", flush=True)
    telemetry.close()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank())
    dist.destroy_process_group()
