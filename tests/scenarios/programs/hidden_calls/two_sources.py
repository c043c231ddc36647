"""FSDP2 over pairs of a caption and an image, each from a source of its own; a generator drives the steps."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def captions(rank: int) -> Iterator[torch.Tensor]:
    """Captions, as vectors."""
    for _ in range(60):
        yield torch.randn(4, 12)


def images(rank: int) -> Iterator[torch.Tensor]:
    """Images, as vectors; one archive was cut off by a full disk."""
    for _ in range(52 if rank == 1 else 60):
        yield torch.randn(4, 12)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> Iterator[float]:
    """Losses, step by step."""
    texts, pictures = captions(rank), images(rank)
    while True:
        try:
            pair = next(texts) + next(pictures)
        except StopIteration:
            return
        loss = model(pair).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def main() -> None:
    """One epoch."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(12, 12) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = list(steps(model, optimizer, dist.get_rank()))
    dist.barrier()
    print(f"{len(losses)} steps, {sum(losses) / len(losses):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
