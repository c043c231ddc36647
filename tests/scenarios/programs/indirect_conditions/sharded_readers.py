"""FSDP2 over rows that a generator takes out of part files; each rank reads the parts that it was given."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass(frozen=True)
class Part:
    """A file with some rows."""

    number: int
    rows: int

    def read(self) -> Iterator[torch.Tensor]:
        """Its rows."""
        for row in range(self.rows):
            yield torch.full((8,), 0.01 * row + self.number)


def assign(parts: list[Part], rank: int, world: int) -> list[Part]:
    """In turns, the small ones first."""
    ordered = sorted(parts, key=lambda part: part.rows)
    return ordered[rank::world]


def batches(parts: list[Part], size: int) -> Iterator[torch.Tensor]:
    """Full batches only."""
    rows = (row for part in parts for row in part.read())
    while len(batch := [row for _, row in zip(range(size), rows, strict=False)]) == size:
        yield torch.stack(batch)


def build(world: int) -> nn.Module:
    """Two sharded layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    """One epoch, then the sum of losses of all ranks."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(world)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    mine = assign([Part(n, 34 if n in (1, 5) else 50) for n in range(10)], rank, world)
    total = torch.zeros(1)
    for batch in batches(mine, 4):
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    dist.all_reduce(total)
    print(f"rank {rank}: {total.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
