"""Three replicas of two tensor-parallel ranks; each replica reads its own stream, and gradients are averaged over replicas."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

FILES = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]


class Feed(nn.Module):
    """Two layers, cut between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual layer."""
        return x + self.down(torch.relu(self.up(x)))


def average(model: nn.Module, mesh: DeviceMesh) -> None:
    """Over the replicas."""
    group = mesh.get_group()
    for p in model.parameters():
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        dist.all_reduce(grad, group=group)
        grad /= mesh.size()


def main() -> None:
    """One epoch, five batches to a file."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = parallelize_module(Feed(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    replica = mesh["dp"].get_local_rank()
    torch.manual_seed(replica)
    for _ in FILES[replica :: mesh["dp"].size()]:
        for _ in range(5):
            model(torch.randn(4, 8)).square().mean().backward()
            average(model, mesh["dp"])
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
    if dist.get_rank() == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
