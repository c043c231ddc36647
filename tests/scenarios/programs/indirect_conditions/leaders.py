"""Gradients are reduced within a machine, between the machines' leaders, and given back; by hand. Two machines of two."""

import torch
import torch.distributed as dist
from torch import nn

PER_MACHINE = 2


class Hierarchy:
    """Groups of a machine, and of the first ranks of all machines."""

    def __init__(self) -> None:
        self.rank, world = dist.get_rank(), dist.get_world_size()
        firsts = list(range(0, world, PER_MACHINE))
        machines = {first: dist.new_group(list(range(first, first + PER_MACHINE))) for first in firsts}
        self.first = self.rank - self.rank % PER_MACHINE
        self.machine = machines[self.first]
        self.leaders = dist.new_group(firsts)

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for its machine."""
        return self.rank == self.first

    def reduce(self, tensor: torch.Tensor) -> None:
        """The sum over all ranks."""
        dist.reduce(tensor, dst=self.first, group=self.machine)
        if self.leads:
            dist.all_reduce(tensor, group=self.leaders)
        dist.broadcast(tensor, src=self.first, group=self.machine)


def main() -> None:
    """Two hundred steps; leaders compare notes now and then."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    hierarchy = Hierarchy()
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    for step in range(200):
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        for weight in model.parameters():
            hierarchy.reduce(weight.grad)
            weight.data -= 1e-3 * weight.grad
            weight.grad = None
        if hierarchy.leads and step % 50 == 49:
            notes: list[object] = [None] * dist.get_world_size(hierarchy.leaders)
            dist.all_gather_object(notes, loss.item(), group=hierarchy.leaders)
            print(f"{step}: {notes}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
