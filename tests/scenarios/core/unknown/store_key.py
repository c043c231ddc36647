"""Rank 0 publishes the shard map in the store under one name, and the others wait for it under another.

Rank 0 goes on to the barrier; the others never come. Started by a launcher that does not supervise.
"""

import json
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def publish(store: dist.Store, epoch: int, shards: dict[str, list[int]]) -> None:
    """Tell all ranks which shards they are to read."""
    store.set(f"shard-map-{epoch:02d}", json.dumps(shards))


def fetch(store: dist.Store, epoch: int) -> dict[str, list[int]]:
    """What rank 0 has published."""
    return json.loads(store.get(f"shard-map-{epoch}"))


def main() -> None:
    """Epochs are counted down; the map is published in each of them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.PrefixStore("data", dist.distributed_c10d._get_default_store())
    for epoch in range(12, 7, -1):
        if rank == 0:
            shards = {str(other): list(range(other, 12, world)) for other in range(world)}
            publish(store, epoch, shards)
        else:
            shards = fetch(store, epoch)
        dist.barrier()
        total = torch.tensor(float(sum(shards[str(rank)])))
        dist.all_reduce(total)
        print(f"[rank {rank}] epoch {epoch}: {total.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
