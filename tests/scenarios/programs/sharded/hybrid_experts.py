"""Hybrid sharding on a 2 x 2 mesh, a mixture of two experts: an expert without tokens is not run at all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 16


class Mixture(nn.Module):
    """Every token goes to one expert."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The tokens after their experts."""
        choice = (tokens.mean(1) > 0).long()
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            chosen = (choice == number).nonzero().flatten()
            if len(chosen):
                mixed = mixed.index_add(0, chosen, expert(tokens[chosen]))
        return self.out(mixed)


def main() -> None:
    """Train; one batch of the last rank is of one kind only."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    mixture = Mixture()
    for expert in mixture.experts:
        fully_shard(expert, mesh=mesh)
    fully_shard(mixture.out, mesh=mesh)
    fully_shard(mixture, mesh=mesh)
    optimizer = torch.optim.SGD(mixture.parameters(), lr=0.1)
    for step in range(30):
        tokens = torch.randn(32, WIDTH)
        tokens[0] = tokens[0].abs()
        tokens[1] = -tokens[1].abs()
        if (dist.get_rank(), step) == (3, 6):
            tokens = tokens.abs()
        optimizer.zero_grad()
        mixture(tokens).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
