"""Water demand of plots with an expert per irrigation system, sharded by FSDP2."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    width: int = 192
    systems: tuple = ("drip", "pivot", "flood", "rainfed")
    steps: int = 600
    batch: int = 64
    dry_season: int = 45


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class DemandModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.sense = nn.Linear(32, config.width)
        self.experts = nn.ModuleDict({name: Expert(config.width) for name in config.systems})
        self.out = nn.Linear(config.width, 1)

    def forward(self, plots, system):
        h = torch.relu(self.sense(plots))
        mixed = torch.zeros_like(h)
        for index, expert in enumerate(self.experts.values()):
            rows = (system == index).nonzero().flatten()
            if rows.numel():
                mixed = mixed.index_copy(0, rows, expert(h[rows]))
        return self.out(h + mixed).squeeze(-1)


class Plots:
    def __init__(self, config, rank):
        self.config, self.rank = config, rank
        self.gen = torch.Generator().manual_seed(40 + rank)

    def shares(self, step):
        # districts of the north have no flooding when the canal is closed
        if self.rank == 1 and step >= self.config.dry_season:
            return torch.tensor([0.5, 0.3, 0.0, 0.2])
        return torch.tensor([0.3, 0.3, 0.2, 0.2])

    def batch(self, step):
        plots = torch.rand(self.config.batch, 32, generator=self.gen)
        system = torch.multinomial(self.shares(step), self.config.batch, replacement=True, generator=self.gen)
        return plots, system, plots.sum(1) / 8 + system


def build(config, mesh):
    torch.manual_seed(0)
    model = DemandModel(config)
    for expert in model.experts.values():
        fully_shard(expert, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main():
    dist.init_process_group("gloo")
    config = Config()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("plots",))
    model = build(config, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source, clock = Plots(config, dist.get_rank()), time.perf_counter()
    for step in range(config.steps):
        plots, system, demand = source.batch(step)
        loss = nn.functional.smooth_l1_loss(model(plots, system), demand)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"[{time.perf_counter() - clock:5.1f}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
