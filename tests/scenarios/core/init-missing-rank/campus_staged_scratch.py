"""Graph classification of molecules: the first process stages the data to scratch, the others wait for it."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
SCRATCH = Path(tempfile.gettempdir(), f"molecules-{os.environ['MASTER_PORT']}")


class Job:
    """One process of the job: set up, stage, train."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.steps = [self.wait_for_data, self.connect, self.stage, self.train]
        if RANK == 0:
            self.steps.remove(self.wait_for_data)

    def wait_for_data(self, poll: float = 0.5) -> None:
        while not (SCRATCH / "complete").exists():
            time.sleep(poll)

    def connect(self) -> None:
        dist.init_process_group("gloo")

    def stage(self) -> None:
        if dist.get_rank() == 0:
            SCRATCH.mkdir(exist_ok=True)
            rng = torch.Generator().manual_seed(0)
            for shard in range(8):
                bonds = (torch.rand(64, 9, 9, generator=rng) < 0.3).float()
                torch.save({"bonds": bonds, "rings": (bonds.sum((1, 2)) > 24).long()}, SCRATCH / f"{shard}.pt")
            (SCRATCH / "complete").touch()

    def train(self) -> None:
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(81, 32), nn.ReLU(), nn.Linear(32, 2)))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(10):
            for shard in range(dist.get_rank(), 8, dist.get_world_size()):
                data = torch.load(SCRATCH / f"{shard}.pt", weights_only=True)
                loss = nn.functional.cross_entropy(model(data["bonds"]), data["rings"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if RANK == 0:
                print(f"epoch {epoch}: {loss.item():.3f}", flush=True)

    def run(self) -> None:
        for step in self.steps:
            print(f"process {RANK}: {step.__name__}", flush=True)
            step()
        dist.destroy_process_group()


if __name__ == "__main__":
    Job().run()
