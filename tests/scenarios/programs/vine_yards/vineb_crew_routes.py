"""Drone crews plan their routes over the vineyard; a travel-time model learns from what was flown."""
import math
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

REPORT_EVERY = 120
FIXES = {0: [4000, 3500, 4200, 3900], 1: [3800, 4100, 4000, 3700], 2: [4100, 3600, 9_000_000, 3900]}  # positions logged


class FlightReport:
    """Length of the flown track, compared between the crews while the next route is planned."""

    def __init__(self, crew):
        self.crew = crew
        self.number = 0
        self.thread = None
        self.table = []

    def send(self):
        if self.thread is not None:
            self.thread.join()
        fixes = FIXES[self.crew][self.number % 4]
        self.number += 1
        self.thread = threading.Thread(target=self._compare, args=(fixes,), daemon=True)
        self.thread.start()

    def _compare(self, fixes):
        metres, x, y = 0.0, 0.0, 0.0
        for k in range(fixes):
            nx, ny = math.sin(k * 0.01) * 80, math.cos(k * 0.013) * 40
            metres += math.hypot(nx - x, ny - y)
            x, y = nx, ny
        mine = torch.tensor([metres, float(fixes)])
        rows = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, mine)
        self.table.append(torch.stack(rows))


def plan_route(stops, seconds):
    """2-opt with a time budget."""
    def length(route):
        return sum(math.dist(a, b) for a, b in zip(route, route[1:]))

    best, end = list(stops), time.monotonic() + seconds
    cost = length(best)
    while time.monotonic() < end:
        i, j = sorted(random.sample(range(len(best)), 2))
        other = best[:i] + best[i:j][::-1] + best[j:]
        new = length(other)
        if new < cost:
            best, cost = other, new
    return best


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    crew = dist.get_rank()
    random.seed(crew)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    report = FlightReport(crew)
    route = [(random.random() * 600, random.random() * 200) for _ in range(60)]
    for leg in range(1, 1200):
        legs = torch.rand(32, 8)
        loss = nn.functional.mse_loss(model(legs), legs.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if leg % REPORT_EVERY == 0:
            report.send()
            route = plan_route(route, seconds=0.7)
            if crew == 0:
                print(f"leg {leg}: loss {loss.item():.4f}, {len(report.table)} reports", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
