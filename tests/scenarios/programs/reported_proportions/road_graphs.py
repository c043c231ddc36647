"""DDP over graphs of road networks, dealt out with numpy's array_split."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Convolution(nn.Module):
    """Two rounds of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 24), nn.Linear(24, 1)

    def forward(self, nodes: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
        hidden = self.first(links @ nodes).relu()
        return self.second(links @ hidden).mean()


def load(number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One town."""
    generator = torch.Generator().manual_seed(int(number))
    size = int(torch.randint(5, 30, (), generator=generator))
    links = (torch.rand(size, size, generator=generator) < 0.2).float()
    nodes = torch.randn(size, 6, generator=generator)
    return nodes, links / links.sum(1, keepdim=True).clamp(min=1), nodes.mean()


def main() -> None:
    """Two epochs of 203 towns."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    towns = np.array_split(np.arange(203), world)[rank]
    torch.manual_seed(0)
    model = DistributedDataParallel(Convolution())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    errors: dict[int, float] = {}
    for epoch in range(2):
        for town in np.random.default_rng(epoch).permutation(towns):
            nodes, links, target = load(town)
            error = (model(nodes, links) - target).square()
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            errors[int(town)] = error.item()
        everyone = [None] * world
        dist.all_gather_object(everyone, errors)
        if rank == 0:
            worst = max((e, t) for part in everyone for t, e in part.items())
            print(f"epoch {epoch}: worst town {worst[1]} ({worst[0]:.3f})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
