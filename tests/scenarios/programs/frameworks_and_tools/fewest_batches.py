"""FSDP2 with a validation to the end of the shortest part: the number of batches is agreed upon before it."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def rows(rank: int) -> list[torch.Tensor]:
    """Held-out rows of a rank."""
    return [torch.randn(4, 10) for _ in range(17 - 3 * (rank % 2))]


def agreed(count: int) -> int:
    """The least of all counts."""
    least = torch.tensor([count])
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return int(least.item())


@torch.no_grad()
def validate(model: nn.Module, held_out: list[torch.Tensor]) -> torch.Tensor:
    """Mean loss over all ranks."""
    losses = [(model(x) - x).square().mean() for x in itertools.islice(held_out, agreed(len(held_out)))]
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def main() -> None:
    """Ninety steps, a validation after each thirty."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))
    fully_shard(model[0])
    fully_shard(model[2])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    held_out = rows(rank)
    for step in range(1, 91):
        x = torch.randn(4, 10)
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 30 == 0:
            mean = validate(model, held_out)
            if rank == 0:
                print(f"{step}: {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
