"""A tensor-parallel block on four ranks; the shards of its weights are watched for growth."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    """Up and down."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """With a residual."""
        return x + self.down(self.up(x).relu())


class Growth:
    """Remembers the largest weight so far."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.reported: set[str] = set()

    def check(self, module: nn.Module, step: int) -> None:
        """Tell of weights that have grown beyond the limit."""
        for name, weight in module.named_parameters():
            if name in self.reported:
                continue
            if isinstance(weight, DTensor) and (top := weight.to_local().abs().max().item()) > self.limit:
                self.reported.add(name)
                share = (weight.full_tensor().abs() > self.limit).float().mean()
                print(f"{step}: {name} has {top:.2f}, {share:.2%} are beyond {self.limit}", flush=True)


def main() -> None:
    """Ninety steps towards a target."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    block = Block(8, 16)
    with torch.no_grad():
        block.up.weight.mul_(0.5)
        block.up.weight[9].fill_(0.3)  # one unit that everything goes through
        block.down.weight[:, 9].fill_(0.3)
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(block.parameters(), lr=0.005)
    growth = Growth(limit=0.7)
    x = torch.ones(4, 8)
    for step in range(90):
        optimizer.zero_grad()
        (block(x) - 6.0).square().mean().backward()
        optimizer.step()
        growth.check(block, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
