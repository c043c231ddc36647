"""Inundation depth maps from terrain descriptors; the network is sharded over the processes."""
import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

EVENTS = [  # past events, cells that were wet
    ("2005-autumn", 5200), ("2009-thaw", 3100), ("2013-june", 5600),
    ("2016-cloudburst", 4900), ("2018-storm", 1400), ("2021-july", 5400),
]
FEATURES = 24


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class DepthNet(nn.Module):
    def __init__(self, width=48, blocks=3):
        super().__init__()
        self.lift = nn.Linear(FEATURES, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.read = nn.Linear(width, 1)

    def forward(self, x):
        x = self.lift(x)
        for block in self.blocks:
            x = block(x)
        return self.read(x).squeeze(-1)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo sums only
    return model


def wet_cells(event, cells):
    gen = torch.Generator().manual_seed(sum(map(ord, event)))
    terrain = torch.randn(cells, FEATURES, generator=gen)
    return terrain, terrain[:, :4].sum(1).clamp(min=0)


def validate(model, events, batch):
    model.eval()
    squared = torch.zeros(2)
    with torch.no_grad():
        for event, cells in events:
            terrain, depth = wet_cells(event, cells)
            for start in range(0, cells, batch):
                guess = model(terrain[start:start + batch])
                squared[0] += (guess - depth[start:start + batch]).square().sum()
                squared[1] += guess.numel()
    dist.all_reduce(squared)
    model.train()
    return math.sqrt(squared[0] / squared[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = shard(DepthNet(), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    mine = EVENTS[rank::world]
    for step in range(1, 4 * options.steps + 1):
        terrain = torch.randn(options.batch * 2, FEATURES, generator=gen)
        loss = (model(terrain) - terrain[:, :4].sum(1).clamp(min=0)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % options.steps == 0:
            rmse = validate(model, mine, options.batch)
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}, rmse on past events {rmse:.3f} m", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
