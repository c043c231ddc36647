"""Tensor and data parallel with FSDP2 on top, a full tensor gathered by all that share it, and a state dict by everyone."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    """Up and down."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A perceptron."""
        return self.down(torch.relu(self.up(x)))


def main() -> None:
    """Thirty steps, saved after the last."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    block = parallelize_module(Block(), mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["data"])
    for step in range(1, 31):
        block(torch.ones(4, 8) * step / 30).square().mean().backward()
        block.zero_grad()
        if step % 10 == 0:
            norm = block.up.weight.detach().full_tensor().norm().item()
            if dist.get_rank() == 3:
                print(f"step {step}, norm {norm:.3f}", flush=True)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    dcp.save({"model": block.state_dict()}, checkpoint_id=folder[0])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
