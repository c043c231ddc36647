"""Train a small water level model on gauge windows, one group of gauges per rank."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("tide_window")


class NoUsableWindow(ValueError):
    """All windows of a batch lie in the maintenance period of their gauge."""


class GaugeArchive:
    """Hourly levels of the gauges of one rank, with the hours in which a gauge was being serviced."""

    SERVICE = {11: range(1400, 1560)}

    def __init__(self, first_gauge, hours=4000):
        gen = torch.Generator().manual_seed(first_gauge)
        t = torch.arange(hours, dtype=torch.float32)
        self.levels = torch.sin(t / 12.42) + 0.2 * torch.sin(t / 160.0) + 0.05 * torch.randn(hours, generator=gen)
        self.service = self.SERVICE.get(first_gauge, range(0))

    def batch(self, step, size=24, window=48):
        starts = [step * 40 + k for k in range(size)]
        usable = [s for s in starts if s not in self.service and s + window not in self.service]
        if not usable:
            raise NoUsableWindow(f"hours {starts[0]} to {starts[-1]}")
        time.sleep(0.03)  # the archive sits on tape-backed storage
        x = torch.stack([self.levels[s:s + window] for s in usable])
        y = torch.stack([self.levels[s + window] for s in usable])
        return x, y


def build_model():
    return nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def run_epoch(model, optimizer, archive, steps=80):
    total, used = 0.0, 0
    for step in range(steps):
        try:
            x, y = archive.batch(step)
        except NoUsableWindow as error:
            log.info("step %d without data: %s", step, error)
            continue
        x = x + 0.004 * torch.randn_like(x)
        loss = (model(x).squeeze(-1) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        used += 1
    return total / max(used, 1)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(3)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    archive = GaugeArchive(first_gauge=10 + rank)
    for epoch in range(3):
        mean = run_epoch(model, optimizer, archive)
        losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, torch.tensor([mean]))
        if rank == 0:
            log.info("epoch %d: %s", epoch, " ".join(f"{v.item():.4f}" for v in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
