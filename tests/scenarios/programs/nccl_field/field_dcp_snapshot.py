"""Pretrains with FSDP2, and keeps the last snapshots with torch.distributed.checkpoint."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard


class Snapshots:
    """Writes to a folder, and removes all but the newest two."""

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every
        self.kept: list[Path] = []

    def due(self, step: int) -> bool:
        return step > 0 and step % self.every == 0

    def write(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        weights, moments = get_state_dict(model, optimizer)
        target = self.folder / f"step{step}"
        dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=str(target))
        self.kept.append(target)
        for old in self.kept[:-2]:
            shutil.rmtree(old, ignore_errors=True)
        print(f"wrote {target}", flush=True)


def build() -> nn.Module:
    layers = [nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 192), nn.SiLU(), nn.Linear(192, 96)) for _ in range(4)]
    model = nn.Sequential(*layers).to("cuda")
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, foreach=False)
    snapshots = Snapshots(Path(tempfile.gettempdir()) / f"snapshots-{os.environ['MASTER_PORT']}", every=12)
    for step in range(100):
        x = torch.rand(16, 96)
        time.sleep(0.2)
        loss = (model(x.cuda()) - x.cuda()).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{rank}] step {step} loss {loss.item():.4f}", flush=True)
        if rank == 0 and snapshots.due(step):
            snapshots.write(model, optimizer, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
