"""DDP: styles of paintings. When all is learnt the first process computes the catalogue's neighbours alone."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PAINTINGS = 900
STYLES = 8


def collection() -> tuple[torch.Tensor, torch.Tensor]:
    """Colours of paintings, and their style."""
    generator = torch.Generator().manual_seed(9)
    colours = torch.rand(PAINTINGS, 24, generator=generator)
    return colours, colours[:, :STYLES].argmax(1)


def catalogue(vectors: torch.Tensor) -> list[int]:
    """For each painting the one beside which it should hang, which must not hang elsewhere already."""
    taken: set[int] = set()
    beside = []
    rows = vectors.tolist()
    for number, row in enumerate(rows):
        nearest, least = -1, float("inf")
        for other, its in enumerate(rows):
            if other != number and other not in taken:
                distance = sum((a - b) ** 2 for a, b in zip(row, its, strict=True))
                if distance < least:
                    nearest, least = other, distance
        taken.add(nearest)
        beside.append(nearest)
    return beside


def main() -> None:
    """Four epochs and the catalogue."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, STYLES))
    model = DistributedDataParallel(body)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    colours, styles = collection()
    for epoch in range(4):
        order = torch.randperm(PAINTINGS, generator=torch.Generator().manual_seed(epoch))
        for rows in order[rank::world].split(20):
            loss = nn.functional.cross_entropy(model(colours[rows]), styles[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()
    if rank == 0:
        with torch.no_grad():
            beside = catalogue(body(colours))
        print(f"first hangs beside {beside[0]}, last beside {beside[-1]}")


if __name__ == "__main__":
    main()
