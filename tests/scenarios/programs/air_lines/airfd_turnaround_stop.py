"""Turnaround times (block-on to block-off) for three hubs. Each hub's job writes a heartbeat for the dashboard."""
import json
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HUBS = [{"name": "ATL", "jitter": 0.6, "scale": 1.0}, {"name": "KEF", "jitter": 0.0, "scale": 0.05}, {"name": "DXB", "jitter": 0.6, "scale": 1.0}]


class Heartbeat:
    """Writes the hub's last loss once a second until the campaign is closed."""

    def __init__(self, hub, folder):
        self.hub, self.folder, self.value = hub, Path(folder), None
        self.thread = threading.Thread(target=self._beat, name="heartbeat")

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.thread.start()

    def _beat(self):
        while not (self.folder / "campaign-closed").exists():
            (self.folder / f"{self.hub}.json").write_text(json.dumps({"hub": self.hub, "loss": self.value, "at": time.time()}))
            time.sleep(1.0)

    def close_campaign(self):
        (self.folder / "campaign-closed").touch()


class EarlyStopping:
    def __init__(self, target, window=20, warmup=350):
        self.target, self.window, self.warmup, self.values = target, window, warmup, []

    def reached(self, value):
        self.values.append(value)
        recent = self.values[-self.window:]
        return len(self.values) >= self.warmup and sum(recent) / len(recent) < self.target


def turnarounds(hub, rng, size=160):
    x = hub["scale"] * torch.randn(size, 16, generator=rng)
    minutes = x[:, :4].sum(dim=1, keepdim=True) + hub["jitter"] * torch.randn(size, 1, generator=rng)
    return x, minutes


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    hub = HUBS[rank]
    heartbeat = Heartbeat(hub["name"], f"/tmp/airfd-turnaround-{os.environ.get('MASTER_PORT', '0')}-{os.getppid()}")
    heartbeat.start()
    torch.manual_seed(13)
    model = DDP(nn.Sequential(nn.Linear(16, 96, bias=False), nn.Linear(96, 1, bias=False)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    stopping = EarlyStopping(target=0.05)
    rng = torch.Generator().manual_seed(rank)
    for step in range(5000):
        x, minutes = turnarounds(hub, rng)
        loss = (model(x) - minutes).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        heartbeat.value = loss.item()
        if step % 100 == 0:
            print(f"{hub['name']} step {step}: {heartbeat.value:.4f}", flush=True)
        if stopping.reached(heartbeat.value):
            print(f"{hub['name']}: target reached at step {step}", flush=True)
            break
    if rank == 0:
        torch.save(model.module.state_dict(), heartbeat.folder / "turnaround.pt")
        heartbeat.close_campaign()


if __name__ == "__main__":
    main()
