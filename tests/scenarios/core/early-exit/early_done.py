"""There are fewer shards than ranks: one rank has nothing to do, and its process ends with status 0.

The others want to merge their results and wait in the store for the word of every rank. Started by a launcher that does
not supervise.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

SHARDS = [f"shard-{number:02d}" for number in range(3)]


def shards_of(rank: int, world: int) -> list[str]:
    """Every world-th shard."""
    return SHARDS[rank::world]


def score(shard: str, model: torch.nn.Module) -> float:
    """The model's mean output on a shard."""
    generator = torch.Generator().manual_seed(sum(shard.encode()))
    with torch.inference_mode():
        return model(torch.randn(256, 12, generator=generator)).mean().item()


def main() -> int:
    """Score this rank's shards; then merge."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.GELU(), torch.nn.Linear(12, 1))
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    dist.broadcast(weights, src=0)
    store = dist.distributed_c10d._get_default_store()
    mine = shards_of(rank, world)
    if not mine:
        print(f"[rank {rank}] nothing to score", flush=True)
        return 0
    for shard in mine:
        store.set(f"score/{shard}", f"{score(shard, model):.5f}")
    store.set(f"scored/{rank}", "yes")
    store.wait([f"scored/{other}" for other in range(world)])
    print(f"[rank {rank}] all scores are in", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
