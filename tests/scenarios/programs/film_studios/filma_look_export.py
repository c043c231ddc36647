"""Look transfer with a sharded transformer; the look is exported for the grading suite now and then."""
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    dim: int = 48
    layers: int = 3
    batch: int = 16
    patches: int = 32
    steps: int = 200
    export_every: int = 80
    folder: str = os.path.join(tempfile.gettempdir(), "looks")


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mix(x)


class LookNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(12, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg.dim) for _ in range(cfg.layers))
        self.out = nn.Linear(cfg.dim, 12)

    def forward(self, patches):
        x = self.inp(patches)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class LookExporter:
    """Writes the look as one file, as the suite's plug-in wants it."""

    def __init__(self, folder):
        self.folder = folder
        self.options = StateDictOptions(full_state_dict=True, cpu_offload=True)

    def __call__(self, model, step):
        os.makedirs(self.folder, exist_ok=True)
        weights = get_model_state_dict(model, options=self.options)
        path = os.path.join(self.folder, f"look_{os.getpid()}_{step:05d}.pt")
        torch.save(weights, path)
        print("exported", path, flush=True)


def main(cfg=Config()):  # noqa: B008
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = shard(LookNet(cfg), mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    export = LookExporter(cfg.folder)
    gen = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, cfg.steps + 1):
        plate = torch.rand(cfg.batch, cfg.patches, 12, generator=gen)
        loss = (model(plate) - plate.sqrt()).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % cfg.export_every == 0:
            if dist.get_rank() == 0:
                export(model, step)
            # the plug-in's index is rebuilt from complete files
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
