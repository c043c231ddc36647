"""Counts sacks per van; each process belongs to a depot with opening hours of its own."""
import os
import queue
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DEPOTS = [
    {"name": "central", "open_for": 3600.0},
    {"name": "harbour", "open_for": 4.0},
    {"name": "airport", "open_for": 3600.0},
]


class Archive(threading.Thread):
    """Takes weights from the training and puts them into the depot's archive in the background."""

    def __init__(self, depot):
        super().__init__(name="archive")
        self.folder = tempfile.mkdtemp(prefix=f"sacks-{depot}-")
        self.inbox = queue.Queue()

    def run(self):
        while True:
            name, state = self.inbox.get()
            path = os.path.join(self.folder, name)
            torch.save(state, path + ".part")
            os.replace(path + ".part", path)


class Shift:
    """Set by the alarm when the depot closes."""

    def __init__(self, seconds):
        self.over = False
        signal.signal(signal.SIGALRM, self._closing)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _closing(self, signum, frame):
        self.over = True


def vans(generator):
    load = torch.rand(32, 20, generator=generator)
    time.sleep(0.02)
    return load, (load > 0.5).float().sum(1, keepdim=True)


def work(depot, model, optimizer, archive):
    shift = Shift(depot["open_for"])
    generator = torch.Generator().manual_seed(len(depot["name"]))
    for step in range(100000):
        load, sacks = vans(generator)
        loss = nn.functional.mse_loss(model(load), sacks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{depot['name']}: step {step} loss {loss.item():.3f}", flush=True)
        if shift.over:
            archive.inbox.put((f"closing-{step}.pt", model.module.state_dict()))
            print(f"{depot['name']}: closed after step {step}", flush=True)
            return


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    depot = DEPOTS[dist.get_rank()]
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    archive = Archive(depot["name"])
    archive.start()
    work(depot, model, optimizer, archive)


if __name__ == "__main__":
    main()
