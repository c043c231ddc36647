"""Dish recommender for a chain of canteens. Jobs are put together from hooks."""
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HOOKS = defaultdict(list)


def hook(event, every=1, main_only=False):
    def register(function):
        HOOKS[event].append((function, every, main_only))
        return function

    return register


def emit(event, job):
    for function, every, main_only in HOOKS[event]:
        if job.step % every or (main_only and not job.is_main):
            continue
        function(job)


class Job:
    def __init__(self, dishes=64, guests=128):
        self.is_main = dist.get_rank() == 0
        torch.manual_seed(5)
        self.model = DDP(nn.Sequential(nn.Linear(guests, 48), nn.ReLU(), nn.Linear(48, dishes)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.step, self.loss = 0, None
        self.source = torch.Generator().manual_seed(100 + dist.get_rank())
        self.folder = Path(tempfile.gettempdir()) / "canteen-menu"

    def batch(self):
        tastes = torch.rand(256, 128, generator=self.source)
        habits = torch.linalg.svd(tastes, full_matrices=False).S  # usual company of guests
        chosen = (tastes[:, :64] * 1.3 + 0.001 * habits[:64]).argmax(dim=1)
        return tastes, chosen

    def run(self, steps):
        while self.step < steps:
            tastes, chosen = self.batch()
            self.loss = nn.functional.cross_entropy(self.model(tastes), chosen)
            self.optimizer.zero_grad()
            self.loss.backward()
            self.optimizer.step()
            self.step += 1
            emit("step", self)
        emit("end", self)


@hook("step", every=20, main_only=True)
def tell(job):
    print(f"{job.step:4d} loss {job.loss.item():.3f}", flush=True)


@hook("step", every=80, main_only=True)
def keep(job):
    state = {"model": job.model.module.state_dict(), "step": torch.tensor(job.step)}
    dcp.save(state, checkpoint_id=str(job.folder / f"step_{job.step}"))


@hook("end", main_only=True)
def bye(job):
    print("menus ready", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    Job().run(steps=400)
    dist.destroy_process_group()
