"""Mixture of skill experts for a legged robot, every expert sharded with FSDP2."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

TERRAINS = ("flat", "stairs", "gravel", "beam")


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.outer(nn.functional.elu(self.inner(x)))


class TerrainPolicy(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.proprio = nn.Linear(30, width)
        self.experts = nn.ModuleDict({t: Expert(width) for t in TERRAINS})
        self.action = nn.Linear(width, 12)

    def forward(self, obs, terrain):
        h = self.proprio(obs)
        out = torch.zeros_like(h)
        for i, name in enumerate(TERRAINS):
            mask = terrain == i
            if mask.any():
                out = out + mask[:, None] * self.experts[name](h)
        return self.action(h + out)


class TerrainSampler:
    def __init__(self, rank):
        self.rank, self.g = rank, torch.Generator().manual_seed(300 + rank)

    def __call__(self, step):
        kinds = len(TERRAINS) - (1 if self.rank == 0 and step > 60 else 0)  # no beam in this yard
        terrain = torch.randint(kinds, (64,), generator=self.g)
        terrain[: kinds] = torch.arange(kinds)
        return torch.randn(64, 30, generator=self.g), terrain


def build():
    policy = TerrainPolicy()
    for expert in policy.experts.values():
        fully_shard(expert)
    fully_shard(policy)
    return policy


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    policy = build()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    sample = TerrainSampler(dist.get_rank())
    for step in range(600):
        obs, terrain = sample(step)
        loss = (policy(obs, terrain) - obs[:, :12].tanh()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
