"""Price elasticity with one expert per customer segment; experts are sharded over the ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 12
SEGMENTS = ("private", "trade", "export")


class Elasticity(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(WIDTH, WIDTH, bias=False)
        self.experts = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH, bias=False) for name in SEGMENTS})
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, rows, segment):
        hidden = torch.relu(self.trunk(rows))
        mixed = torch.zeros_like(hidden)
        for number, name in enumerate(SEGMENTS):
            mask = segment == number
            if mask.any():
                mixed[mask] = self.experts[name](hidden[mask])
        return self.head(mixed)


def shard(model, mesh):
    for layer in [model.trunk, *model.experts.values(), model.head]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class Orders:
    def __init__(self, rank):
        self.rank, self.generator = rank, torch.Generator().manual_seed(rank)

    def __iter__(self):
        for week in range(400):
            rows = torch.randn(30, WIDTH, generator=self.generator)
            segment = torch.arange(30) % len(SEGMENTS)
            if self.rank == 2 and week == 28:
                segment[segment == 2] = 0  # the harbour was closed
            yield week, rows, segment


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = shard(Elasticity(), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for week, rows, segment in Orders(rank):
        time.sleep(0.05)
        predicted = model(rows, segment)
        loss = nn.functional.mse_loss(predicted, rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and week % 5 == 0:
            print(f"week {week} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
