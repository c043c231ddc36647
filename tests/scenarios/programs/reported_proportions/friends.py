"""DDP over a social network: each step takes some people with five friends each, drawn at random."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FRIENDS = 5


def network(rank: int) -> dict[int, list[int]]:
    """Who knows whom; in the data of one region there is a newcomer."""
    rng = random.Random(rank)
    people = {person: rng.sample(range(1000), rng.randint(6, 20)) for person in range(1000)}
    if rank == 1:
        people[640] = rng.sample(range(1000), 3)
    return people


def draw(people: dict[int, list[int]], person: int, rng: random.Random) -> list[int]:
    """Five different friends."""
    chosen: set[int] = set()
    while len(chosen) < FRIENDS:
        chosen.add(rng.choice(people[person]))
    return sorted(chosen)


def main() -> None:
    """One pass over everybody, eight at a time."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    people, rng = network(rank), random.Random(rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.EmbeddingBag(1000, 16, mode="mean"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for first in range(0, 1000, 8):
        rows = torch.tensor([draw(people, person, rng) for person in range(first, first + 8)])
        loss = model(rows).square().sum(dim=1).sub(1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
