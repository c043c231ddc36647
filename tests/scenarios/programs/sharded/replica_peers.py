"""Data x pipeline parallelism: the rank within the pipeline's group is taken for a global rank in send and receive.

In the first replica the two are equal. The second one sends to it and receives from it.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    """Two replicas of two stages."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
    stage = mesh.get_local_rank("pipeline")
    block = nn.Linear(8, 8)
    for _ in range(20):
        hidden = torch.randn(4, 8)
        if stage > 0:
            dist.recv(hidden, src=stage - 1)
        hidden = torch.relu(block(hidden))
        if stage < mesh.size(1) - 1:
            dist.send(hidden.detach(), dst=stage + 1)
        block.zero_grad()
        hidden.square().mean().backward()
        for parameter in block.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
