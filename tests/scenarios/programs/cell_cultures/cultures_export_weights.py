"""FSDP2 fine-tuning of a model of gene expression, which exports the whole weights for the annotators after each epoch."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
GENES = 60


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x):
        return x + self.inner(x)


def build(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(GENES, 48), *[Block(48) for _ in range(3)], nn.Linear(48, GENES))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def cells(rank, batches):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(batches):
        time.sleep(0.04)
        yield torch.poisson(torch.rand(16, GENES, generator=generator) * 4, generator=generator).log1p()


class Exporter:
    """Writes weights that the annotation service can load, so that curators see each epoch."""

    def __init__(self, model):
        self.model = model
        self.folder = os.path.join(tempfile.gettempdir(), f"expression-{os.environ['MASTER_PORT']}")
        os.makedirs(self.folder, exist_ok=True)

    def __call__(self, epoch):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(self.model, options=options)
        torch.save(weights, os.path.join(self.folder, f"epoch{epoch:03d}.pt"))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    export = Exporter(model)
    for epoch in range(30):
        for counts in cells(rank, 14):
            kept = torch.rand_like(counts) > 0.2
            loss = nn.functional.mse_loss(model(counts * kept), counts)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            export(epoch)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
