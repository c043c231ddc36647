"""First and last pipeline stage tie their embeddings: the group for it is made by these two ranks alone.

The count by which torch names groups is off by one on them ever after, and the next group that all ranks make has
two names.
"""

import os

import torch
import torch.distributed as dist
from torch import nn


def make_embedding_group(rank: int, world: int) -> dist.ProcessGroup | None:
    """The ranks on which the word embeddings live."""
    if rank in (0, world - 1):
        return dist.new_group([0, world - 1])
    return None


def tie(embedding: nn.Embedding, group: dist.ProcessGroup | None) -> None:
    """Start with the same embedding in the first and in the last stage."""
    if group is not None:
        dist.all_reduce(embedding.weight.data, group=group)


def main() -> None:
    """Set up the groups, then train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), dist.get_world_size()
    embedding = nn.Embedding(32, 8)
    tied = make_embedding_group(rank, world)
    tie(embedding, tied)
    dist.barrier()
    print(f"rank {rank}: embeddings are {'tied' if tied else 'not mine'}", flush=True)
    monitors = dist.new_group(list(range(1, world)))
    for _ in range(50):
        tokens = torch.randint(32, (4, 8))
        loss = embedding(tokens).square().mean()
        loss.backward()
        dist.all_reduce(embedding.weight.grad)
        if rank:
            dist.all_reduce(loss.detach(), group=monitors)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
