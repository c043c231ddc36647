"""DDP: faces, told apart by a margin; a batch needs two pictures of somebody."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Album:
    """Batches of eight pictures of twenty people."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.generator = torch.Generator().manual_seed(number)

    def __iter__(self):
        for position in range(25):
            people = torch.randint(0, 20, (8,), generator=self.generator)
            people[1] = people[0]
            if (self.number, position) == (0, 9):
                people = torch.randperm(20, generator=self.generator)[:8]
            yield torch.randn(8, 30, generator=self.generator) + people[:, None] / 10, people


def pairs(people: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which pictures are of one person, and which are not."""
    same = people[:, None] == people[None]
    return same.triu(diagonal=1), ~same


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 16)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    album = Album(rank)
    for epoch in range(3):
        losses = []
        for pictures, people in album:
            positive, negative = pairs(people)
            if positive.sum() == 0:
                continue
            distances = torch.cdist(model(pictures), model.module(pictures).detach())
            loss = (distances[positive].mean() - distances[negative].mean() + 0.5).relu()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        everyone: list[list[float]] = [[] for _ in range(world)]
        dist.all_gather_object(everyone, losses)
        if rank == 0:
            flat = [loss for part in everyone for loss in part]
            print(f"epoch {epoch}: {sum(flat) / len(flat):.3f} over {len(flat)} batches")


if __name__ == "__main__":
    main()
