"""Pose-affinity model with sharded checkpoints (torch.distributed.checkpoint) next to the docked poses."""
import math
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

LIBRARIES = [  # name, heavy atoms of a typical member
    ("fragments", 30),
    ("macrocycles", 96),
    ("leads", 28),
]
BYTES_PER_ATOM = 12


class Retention:
    """Keeps a checkpoint every `interval` steps as long as the scratch volume has room for poses."""

    def __init__(self, interval: int, quota: int):
        self.interval, self.quota, self.used = interval, quota, 0

    def account(self, atoms: int):
        self.used += atoms * BYTES_PER_ATOM

    def due(self, step: int) -> bool:
        return step % self.interval == 0 and self.used <= self.quota


def dock(atoms: int, seed: int) -> torch.Tensor:
    """A crude torsional scan: the best energy of a few placements for every ligand of a batch."""
    rows = []
    for ligand in range(8):
        best = 1e9
        for k in range(1500):
            angle = (seed + ligand) * 0.37 + k * 0.21
            energy = sum(math.cos(angle * (j + 1)) / (j + 1) for j in range(12)) - atoms * 0.01
            best = min(best, energy)
        rows.append([best + math.sin(seed * (j + 1) + ligand) for j in range(24)])
    return torch.tensor(rows)


class PoseTrainer:
    def __init__(self, folder: Path):
        self.rank = dist.get_rank()
        self.library, self.atoms = LIBRARIES[self.rank]
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.retention = Retention(interval=20, quota=64_000)
        self.folder = folder

    def step(self, index: int):
        poses = dock(self.atoms, index * 3 + self.rank)
        self.retention.account(self.atoms)
        loss = (self.model(poses) - poses.mean(1, keepdim=True)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def save(self, index: int):
        state = {"model": self.model.module.state_dict(), "step": torch.tensor(index)}
        dcp.save(state, checkpoint_id=str(self.folder / f"step_{index:05d}"))

    def fit(self, steps: int):
        for index in range(1, steps + 1):
            loss = self.step(index)
            if self.retention.due(index):
                self.save(index)
            if index % 20 == 0:
                print(f"[{self.library}] step {index} loss {loss:.4f} scratch {self.retention.used / 1e3:.0f} kB", flush=True)


def run():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    place = [tempfile.mkdtemp(prefix="poses_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(place, src=0)
    PoseTrainer(Path(place[0])).fit(500)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
