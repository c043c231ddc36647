"""FSDP2 training that exports the full weights every epoch."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)


class Mlp(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        self.stem = nn.Linear(20, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def shard(model: nn.Module, mesh) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def export(model: nn.Module, path: Path) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    torch.save(weights, path)


def train_epoch(model, optimizer, generator, steps):
    total = 0.0
    for _ in range(steps):
        x = torch.randn(16, 20, generator=generator)
        y = (x[:, 0] * x[:, 1] > 0).long()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return total / steps


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    torch.manual_seed(11)
    model = shard(Mlp(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    folder = Path(tempfile.gettempdir(), f"mlp-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    for epoch in range(50):
        begin = time.perf_counter()
        loss = train_epoch(model, optimizer, generator, steps=25)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, {time.perf_counter() - begin:.1f} s", flush=True)
            export(model, folder / f"epoch{epoch}.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
