"""Structure model with FSDP2: a trunk over sequences, and a tower for density maps where an entry has one."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
WIDTH = 48


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class StructureModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.ModuleList(Block() for _ in range(3))
        self.density = Block()
        self.refine = Block()
        self.head = Block()

    def forward(self, sequence, density=None):
        hidden = sequence
        for block in self.trunk:
            hidden = block(hidden)
        if density is not None:
            hidden = hidden + self.density(density)
        return self.head(self.refine(hidden))


def shard(model, mesh):
    for module in (*model.trunk, model.density, model.refine, model.head):
        fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def entries(rank, count):
    """Batches of the structure archive. Those by crystallography have no map."""
    generator = torch.Generator().manual_seed(rank)
    for index in range(count):
        time.sleep(0.05)
        sequence = torch.randn(8, WIDTH, generator=generator)
        density = torch.randn(8, WIDTH, generator=generator)
        crystal = rank == 2 and index >= 14
        yield sequence, None if crystal else density


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = shard(StructureModel(), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (sequence, density) in enumerate(entries(rank, 300)):
        prediction = model(sequence, density)
        loss = nn.functional.mse_loss(prediction, sequence.flip(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
