"""Continues a run from its last checkpoint: each rank has a file with its own position in its stream."""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Position:
    """Where a rank is in its stream."""

    step: int = 0
    samples: int = 0

    @classmethod
    def load(cls, path: Path) -> "Position":
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def save(self, path: Path) -> None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.rename(path)


class Stream:
    def __init__(self, rank: int, batch_size: int) -> None:
        self.generator = torch.Generator().manual_seed(rank)
        self.batch_size = batch_size

    def batches(self, position: Position, until: int) -> Iterator[torch.Tensor]:
        for _ in range(position.step):
            torch.randn(self.batch_size, 14, generator=self.generator)
        while position.step < until:
            yield torch.randn(self.batch_size, 14, generator=self.generator)
            position.step += 1
            position.samples += self.batch_size
            time.sleep(0.03)


def leave_previous_run(folder: Path, world: int) -> None:
    """The run of yesterday, as far as it came."""
    for rank in range(world):
        step = 390 if rank == 1 else 400
        Position(step, step * 16).save(folder / f"position-{rank}.json")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir()) / f"resume-{os.environ['MASTER_PORT']}"
    if rank == 0:
        folder.mkdir()
        leave_previous_run(folder, world)
    dist.barrier()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(14, 28), nn.ELU(), nn.Linear(28, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    position = Position.load(folder / f"position-{rank}.json")
    print(f"[{rank}] resumed at step {position.step}", flush=True)
    stream = Stream(rank, batch_size=16)
    for limit in (500, 600, 700):
        for x in stream.batches(position, until=limit):
            loss = (model(x).squeeze(1) - x.amax(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reached = [None] * world
        dist.all_gather_object(reached, position.samples)
        position.save(folder / f"position-{rank}.json")
        if rank == 0:
            print(f"{sum(reached)} samples, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
