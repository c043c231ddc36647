"""Skin texture of berries as features for the sorting table."""

import math
import multiprocessing
import os
import resource
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CPU_SECONDS = 4  # of a worker; the sorting table shares this machine


def share_machine():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def texture(berry):
    """Radius, roughness and gloss; the radius is fitted until it no longer changes."""
    seed, tolerance = berry
    points = [1 + 0.05 * math.sin(seed + 0.7 * k) for k in range(48)]
    radius, change = 0.5, 1.0
    while change > tolerance:
        target = sum(points) / len(points)
        change = abs(target - radius) * 0.3 + 1e-12
        radius += (target - radius) * 0.3
    rough = sum((p - radius) ** 2 for p in points) / len(points)
    return [radius, rough * 100, math.cos(seed)]


class Crate:
    """Berries of one sorting lane."""

    def __init__(self, lane, size=24):
        self.lane, self.size = lane, size

    def berries(self, number):
        tolerance = 1e-15 if (self.lane, number) == (1, 70) else 1e-9
        return [(number * self.size + k, tolerance if k == 5 else 1e-9) for k in range(self.size)]


class Sorter:
    def __init__(self, pool):
        self.pool = pool
        self.model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def train_on(self, berries):
        x = torch.tensor(self.pool.map(texture, berries))
        y = (x[:, 2] > 0).long()
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    pool = multiprocessing.get_context("fork").Pool(2, initializer=share_machine)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    crate, sorter = Crate(dist.get_rank()), Sorter(pool)
    for number in range(400):
        loss = sorter.train_on(crate.berries(number))
        time.sleep(0.03)
        if number % 20 == 0:
            print(f"lane {crate.lane} crate {number}: {loss:.3f} (pid {os.getpid()})", flush=True)
    pool.close()
    pool.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
