"""Reheating furnace twin: learns slab core temperatures from zone histories; measurements go to the historian while training runs."""
import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Historian:
    """Ships tagged values in the background, as the plant's historian takes them: one small file per second."""

    def __init__(self, rank):
        self.rows = queue.Queue()
        self.closing = threading.Event()
        self.path = f"/tmp/historian_{os.getpid()}_{rank}.csv"
        self.shipper = threading.Thread(target=self.ship, name="historian")
        self.shipper.start()

    def ship(self):
        while not (self.closing.is_set() and self.rows.empty()):
            try:
                tag, value = self.rows.get(timeout=1.0)
            except queue.Empty:
                continue
            with open(self.path, "a") as file:
                file.write(f"{time.time():.1f};{tag};{value:.4f}\n")

    def put(self, tag, value):
        self.rows.put((tag, value))

    def close(self):
        self.closing.set()
        self.shipper.join()


class ZoneTwin(nn.Module):
    def __init__(self, zones=6, minutes=48):
        super().__init__()
        self.history = nn.Linear(zones * minutes, 160)
        self.core = nn.Sequential(nn.ReLU(), nn.Linear(160, 80), nn.ReLU(), nn.Linear(80, 1))

    def forward(self, zones):
        return self.core(self.history(zones.flatten(1)))


def furnace_history(furnace, charge, slabs=48, zones=6, minutes=48):
    generator = torch.Generator().manual_seed(furnace * 10_000 + charge)
    setpoints = torch.linspace(850, 1260, zones)[None, :, None]
    noise = torch.randn(slabs, zones, minutes, generator=generator)
    zone = setpoints + 12 * noise.cumsum(-1) / 7
    core = torch.full((slabs,), 20.0)
    for minute in range(minutes):
        core = core + 0.045 * (zone[:, minute * zones // minutes, minute] - core)
    if furnace == 1 and charge == 318:
        core[7] = float("nan")
    return zone, core


def check(name, values):
    if not torch.isfinite(values).all():
        where = (~torch.isfinite(values)).nonzero().flatten().tolist()
        raise ValueError(f"{name}: no value for slabs {where}")
    return values


def main():
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    historian = Historian(rank)
    model = DistributedDataParallel(ZoneTwin().cuda(), device_ids=[local])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for charge in range(1200):
        zone, core = furnace_history(rank, charge)
        core = check("core temperature", core)
        historian.put("core.mean", core.mean().item())
        loss = nn.functional.l1_loss(model(zone.cuda() / 1300).squeeze(1), core.cuda() / 1300)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if charge % 25 == 24:
            historian.put("loss", loss.item())
            if rank == 0:
                print(f"charge {charge}: loss {loss.item():.4f}", flush=True)
    historian.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
