"""Molecules by length: ranks have unequal numbers of batches, and train within the join context."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def molecules(rank):
    count = 60 if rank == 0 else 20
    g = torch.Generator().manual_seed(rank)
    for _ in range(count):
        atoms = int(torch.randint(5, 30, (1,), generator=g))
        time.sleep(0.25)
        yield torch.randn(atoms, 10, generator=g), torch.randn(1, generator=g)


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom, self.read = nn.Linear(10, 20), nn.Linear(20, 1)

    def forward(self, atoms):
        return self.read(torch.relu(self.atom(atoms)).sum(0))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(Potential())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with model.join():
        for atoms, energy in molecules(rank):
            loss = (model(atoms) - energy).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    value = loss.detach().clone()
    dist.all_reduce(value)
    print(f"rank {rank}: {value.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
