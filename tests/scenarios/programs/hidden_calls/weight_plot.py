"""Two replicas of a tensor-parallel block; one rank draws a histogram of the weights now and then."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    """Up and down."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A perceptron."""
        return self.down(torch.relu(self.up(x)))


class Histogram:
    """Drawn by one rank."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.artist = mesh.get_local_rank("data") == 1 and mesh.get_local_rank("tensor") == 0

    def draw(self, weight: DTensor) -> list[float] | None:
        """Ten bins."""
        if not self.artist:
            return None
        return weight.detach().full_tensor().histc(10).tolist()


def main() -> None:
    """Sixty steps, drawn after each twentieth."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    block = parallelize_module(Block(), mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    histogram = Histogram(mesh)
    for step in range(1, 61):
        block.zero_grad()
        block(torch.ones(4, 8) * step / 60).square().mean().backward()
        if step % 20 == 0:
            histogram.draw(block.up.weight)
        for parameter in block.parameters():
            dist.all_reduce(parameter.grad.to_local(), group=mesh.get_group("data"))
            parameter.data -= 1e-3 * parameter.grad
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
