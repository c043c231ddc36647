"""Loads the feature manifest, then joins the job. Rank 0 writes the manifest, from what all ranks agree on."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DEFAULTS = {"features": ["age", "visits", "basket", "returns"], "version": 3}


class Manifest:
    """The list of features of this run, in a file that all ranks read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "manifest.json"

    def publish(self, content: dict) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(content))
        part.rename(self.path)

    def wait(self) -> dict:
        while not self.path.exists():
            time.sleep(0.25)
        return json.loads(self.path.read_text())


def setup(folder: Path) -> tuple[dict, int]:
    """Returns the manifest and the rank."""
    manifest = Manifest(folder)
    if int(os.environ["RANK"]) != 0:
        content = manifest.wait()
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo")
        content = {**DEFAULTS, "world": dist.get_world_size()}
        manifest.publish(content)
    return content, dist.get_rank()


def train(features: int, rank: int, steps: int) -> None:
    torch.manual_seed(0)
    model = DDP(nn.Linear(features, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(64, features, generator=generator)
        loss = (model(x).squeeze(1) - x.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()) / f"run-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    content, rank = setup(folder)
    train(len(content["features"]), rank, steps=200)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
