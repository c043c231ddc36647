"""A pipeline x data x context mesh, whose last two dimensions are flattened into one on the stage with the loss only.

Flattening makes process groups, and torch names a group by how many a rank has made before: the group that all ranks
make for evaluation has another name on either stage.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

EVALUATORS = [1, 2]  # the ones with memory to spare


def loss_group(mesh: DeviceMesh) -> dist.ProcessGroup:
    """The ranks over which the loss is averaged."""
    return mesh["data", "context"]._flatten("loss").get_group()


def main() -> None:
    """Train two stages of two, then evaluate on two of the ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=("pipeline", "data", "context"))
    last = mesh.get_local_rank("pipeline") == 1
    block = nn.Linear(4, 4)
    group = loss_group(mesh) if last else None
    for _ in range(30):
        loss = block(torch.randn(2, 4)).square().mean()
        block.zero_grad()
        loss.backward()
        for parameter in block.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
        if group is not None:
            dist.all_reduce(loss.detach(), group=group)
    evaluators = dist.new_group(EVALUATORS)
    score = torch.ones(1)
    if dist.get_rank() in EVALUATORS:
        dist.all_reduce(score, group=evaluators)
    dist.broadcast(score, src=EVALUATORS[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
