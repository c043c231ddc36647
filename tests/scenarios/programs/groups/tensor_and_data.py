"""Tensor x data parallelism on a DeviceMesh: each rank reduces first whichever of two gradients it finished first.

The embedding is shared by the tensor group, the block is replicated over the data group. The order in which autograd
finishes them depends on the branch that the rank's sample takes.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


class TwoPaths(nn.Module):
    """A table and a block; short samples look up before the block, long ones after."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Linear(16, 16, bias=False)
        self.block = nn.Linear(16, 16, bias=False)

    def forward(self, sample: torch.Tensor, long: bool) -> torch.Tensor:
        """The mean activation."""
        hidden = self.table(torch.relu(self.block(sample))) if long else self.block(torch.relu(self.table(sample)))
        return hidden.square().mean()


class OverlappedReducer:
    """Reduces a gradient as soon as it is there."""

    def __init__(self, model: TwoPaths, mesh: DeviceMesh) -> None:
        self.groups = {model.table.weight: mesh.get_group("tensor"), model.block.weight: mesh.get_group("data")}
        for parameter in self.groups:
            parameter.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter: torch.Tensor) -> None:
        """Average one gradient over its group."""
        group = self.groups[parameter]
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= group.size()


def main() -> None:
    """Train on short samples, and on a mixture of lengths from the twentieth step on."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    row, column = mesh.get_coordinate()
    model = TwoPaths()
    OverlappedReducer(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100):
        length = 64 if step >= 20 and (row + column) % 2 else 16
        sample = torch.randn(length, 16)
        optimizer.zero_grad()
        model(sample, length > 32).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
