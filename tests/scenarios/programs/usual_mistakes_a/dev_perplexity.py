"""FSDP2: a model of log lines; the perplexity of held-out chunks is computed after each epoch."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS = 70


class Block(nn.Module):
    """A layer with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def chunks(count: int, seed: int) -> list[torch.Tensor]:
    """Of sixteen words."""
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randint(0, WORDS, (count, 16), generator=generator))


@torch.no_grad()
def perplexity(model: nn.Module, held_out: list[torch.Tensor]) -> float:
    """Of all chunks, each of which one rank looks at."""
    rank, world = dist.get_rank(), dist.get_world_size()
    totals = torch.zeros(2)
    model.eval()
    for chunk in held_out[rank::world]:
        logits = model(chunk[None, :-1])
        totals[0] += nn.functional.cross_entropy(logits[0], chunk[1:], reduction="sum")
        totals[1] += len(chunk) - 1
    model.train()
    dist.all_reduce(totals)
    return math.exp((totals[0] / totals[1]).item())


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, 24), Block(24), Block(24), nn.Linear(24, WORDS))
    mesh = init_device_mesh("cpu", (world,))
    for block in model[1:3]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    lines, held_out = chunks(96, seed=1), chunks(32, seed=2)
    for epoch in range(3):
        for chunk in lines[rank::world]:
            loss = nn.functional.cross_entropy(model(chunk[None, :-1])[0], chunk[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        value = perplexity(model, held_out)
        if rank == 0:
            print(f"epoch {epoch}: perplexity {value:.1f}")


if __name__ == "__main__":
    main()
