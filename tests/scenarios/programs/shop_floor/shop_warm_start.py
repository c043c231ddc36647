"""Warm start: each machine looks for the last weights on its own disk, the first one's are used everywhere."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpoints:
    """Weights on the machine's local disk, under the name of the model."""

    def __init__(self, disk: Path, name: str) -> None:
        self.disk, self.name = disk, name
        self.disk.mkdir(parents=True, exist_ok=True)

    @property
    def latest(self) -> Path:
        return self.disk / f"{self.name}-latest.pt"

    def save(self, model: nn.Module, step: int) -> None:
        torch.save({"weights": model.state_dict(), "step": step}, self.latest)

    def restore(self, model: nn.Module) -> int:
        """Loads the first machine's weights into the model of every machine, and returns their step."""
        if not self.latest.exists():
            return 0
        box = [torch.load(self.latest) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(box, src=0)
        model.load_state_dict(box[0]["weights"])
        return box[0]["step"]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(18, 36), nn.Tanh(), nn.Linear(36, 3))


def previous_job(disk: Path) -> None:
    """Left its weights on the machines it ran on. One of them has been replaced since."""
    torch.manual_seed(9)
    Checkpoints(disk, "uplift").save(build(), step=1200)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    disk = Path(tempfile.gettempdir()) / f"uplift-{os.environ['MASTER_PORT']}" / f"machine-{rank}"
    disk.mkdir(parents=True)
    if rank != 1:
        previous_job(disk)
    checks = torch.ones(1)
    for _ in range(15):  # the burn-in test of the cluster team
        dist.all_reduce(checks, op=dist.ReduceOp.MAX)
        time.sleep(0.1)
    model = build()
    checkpoints = Checkpoints(disk, "uplift")
    start = checkpoints.restore(model)
    replicated = DDP(model)
    optimizer = torch.optim.AdamW(replicated.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank + start)
    for step in range(start, start + 300):
        x = torch.randn(32, 18, generator=generator)
        loss = nn.functional.cross_entropy(replicated(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            checkpoints.save(model, step + 1)
            print(f"[{rank}] {step + 1}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
