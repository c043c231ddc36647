"""Data x tensor parallelism: the first replica saves with torch.distributed.checkpoint, which asks the whole world."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    """Train six ranks, three replicas of two."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("data", "tensor"))
    data, tensor = mesh.get_group("data"), mesh.get_group("tensor")
    folder = tempfile.mkdtemp()
    block = nn.Linear(8, 4)
    for step in range(1, 41):
        outputs = block(torch.randn(2, 8))
        dist.all_reduce(outputs.detach(), group=tensor)
        block.zero_grad()
        outputs.sum().backward()
        for parameter in block.parameters():
            dist.all_reduce(parameter.grad, group=data)
        # The replicas are equal, so that one of them is enough.
        if step % 20 == 0 and mesh.get_local_rank("data") == 0:
            dcp.save({"block": block.state_dict()}, checkpoint_id=f"{folder}/{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
