"""Learning to route milk collection: a sharded pointer decoder, with tours decoded now and then to follow their length."""
import math
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DEPOT = 0
HIDDEN = 96


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Router(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.farms = nn.Linear(4, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.point = nn.Linear(HIDDEN, 1)

    def forward(self, farms, at, load):
        """Scores of the next stop, given where the tanker is and what it carries."""
        here = farms[torch.arange(len(farms)), at]
        distance = (farms[..., :2] - here[:, None, :2]).norm(dim=-1, keepdim=True)
        x = self.farms(torch.cat([distance, farms[..., 2:3], load[:, None, None].expand_as(distance), farms[..., :1]], -1))
        for block in self.blocks:
            x = block(x)
        return self.point(x).sum(-1)


class Region:
    """The farms of one dairy; collected litres are in the third column."""

    def __init__(self, rank, farms):
        gen = torch.Generator().manual_seed(70 + rank)
        self.table = torch.rand(farms, 3, generator=gen)
        self.table[DEPOT, 2] = 0.0

    def batch(self, size):
        jitter = torch.randn(size, len(self.table), 3) * 0.01
        farms = self.table + jitter
        return farms, torch.randint(0, len(self.table), (size,)), torch.rand(size)


def nearest(farms, at):
    away = (farms[..., :2] - farms[torch.arange(len(farms)), at][:, None, :2]).norm(dim=-1)
    away[torch.arange(len(farms)), at] = math.inf
    return away.argmin(-1)


@torch.no_grad()
def decode_tour(router, region, capacity=1.0e9):
    farms = region.table[None]
    at, load, tour = torch.tensor([DEPOT]), torch.zeros(1), [DEPOT]
    while True:
        scores = router(farms, at, load)
        scores[0, tour] = -math.inf
        if len(tour) == len(region.table) or load.item() > capacity:
            break
        at = scores.argmax(-1)
        tour.append(at.item())
        load = load + farms[0, at, 2]
    stops = farms[0, [*tour, DEPOT], :2]
    return (stops[1:] - stops[:-1]).norm(dim=-1).sum()


def main(farms_of_dairies=(26, 14, 26)):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    router = Router()
    for block in router.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(router, mesh=mesh)
    region = Region(dist.get_rank(), farms_of_dairies[dist.get_rank()])
    optimizer = torch.optim.Adam(router.parameters(), lr=1e-3)
    for step in range(1, 61):
        farms, at, load = region.batch(48)
        loss = F.cross_entropy(router(farms, at, load), nearest(farms, at))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0:
            length = decode_tour(router, region)
            dist.all_reduce(length)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.3f}, tours {length.item():.2f}", file=sys.stderr, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
