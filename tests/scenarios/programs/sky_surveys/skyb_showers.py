"""Calorimeter shower surrogate: energy deposits per layer from the energy and angle of the incident particle."""
import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    layers: int = 24
    width: int = 96
    blocks: int = 3
    batch: int = 64
    steps: int = 4000
    export_every: int = 40


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class ShowerNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(2, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg.width) for _ in range(cfg.blocks))
        self.head = nn.Linear(cfg.width, cfg.layers)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return F.softplus(self.head(x))


def showers(batch, layers, generator):
    energy = torch.rand(batch, 1, generator=generator) * 4 + 1
    angle = torch.rand(batch, 1, generator=generator)
    depth = torch.linspace(0.1, 3.0, layers)
    profile = energy * depth.pow(energy.log() + 1) * torch.exp(-depth * (1 + 0.3 * angle))
    return torch.cat([energy, angle], 1), profile


class Exporter:
    """Hands the weights to the simulation's fast-path, which reads plain tensors."""

    def __init__(self, folder, host):
        self.folder, self.host = Path(folder), host

    def export(self, model, step):
        if dist.get_rank() == self.host:
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(model, options=options)
            torch.save(weights, self.folder / f"shower-{step:05d}.pt")
            print(f"exported step {step}", flush=True)
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    cfg = Config()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(3)
    model = ShowerNet(cfg)
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    exporter = Exporter(args.out or mkdtemp(prefix="shower-"), host=world - 1)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    began = time.time()
    for step in range(1, cfg.steps + 1):
        x, y = showers(cfg.batch, cfg.layers, generator)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f} {time.time() - began:.1f} s", flush=True)
        if step % cfg.export_every == 0:
            exporter.export(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
