"""Reserves for wildfire claims: expected cost of a claim from policy and damage report, per adjuster's office."""
import collections
import os
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOFS = {"tile": 0.2, "slate": 0.15, "metal": 0.1, "shingle": 0.6}
OFFICES = ["Redding", "Santa Rosa", "Paradise"]


class Gauge(threading.Thread):
    """Samples the load of the machine for the run's page."""

    def __init__(self, period=0.5):
        super().__init__(name="gauge")
        self.period = period
        self.samples = collections.deque(maxlen=600)
        self._stop_asked = threading.Event()

    def run(self):
        while not self._stop_asked.wait(self.period):
            self.samples.append((time.time(), os.getloadavg()[0]))

    def stop(self):
        self._stop_asked.set()
        self.join()


class ClaimStream:
    def __init__(self, office, seed):
        self.office, self.random = office, random.Random(seed)
        self.number = 0

    def claim(self):
        self.number += 1
        roof = self.random.choice(list(ROOFS))
        if self.office == "Santa Rosa" and self.number == 5210:
            roof = "shake"
        return {
            "roof": roof,
            "area": self.random.lognormvariate(5, 0.4),
            "distance": self.random.expovariate(1 / 300),
            "notes": [self.random.random() for _ in range(1800)],
        }

    def encode(self, claim):
        risk = ROOFS[claim["roof"]]
        notes = sorted(claim["notes"])
        quantiles = [notes[int(q * len(notes))] for q in (0.1, 0.25, 0.5, 0.75, 0.9)]
        x = [risk, claim["area"] / 200, min(claim["distance"] / 500, 4.0), *quantiles]
        cost = risk * claim["area"] / 100 * (1.5 if claim["distance"] < 100 else 0.4)
        return x, cost

    def batch(self, n=32):
        rows = [self.encode(self.claim()) for _ in range(n)]
        return torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


def pinball(prediction, target, q=0.75):
    d = target - prediction
    return torch.maximum(q * d, (q - 1) * d).mean()


def train(model, stream, rank, steps=900):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        x, cost = stream.batch()
        loss = pinball(model(x).squeeze(-1), cost)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"{step:5d} pinball {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gauge = Gauge()
    gauge.start()
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 256), nn.SiLU(), nn.Linear(256, 1)))
    train(model, ClaimStream(OFFICES[rank], seed=rank), rank)
    gauge.stop()
    if rank == 0:
        print(f"mean load {sum(v for _, v in gauge.samples) / len(gauge.samples):.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
