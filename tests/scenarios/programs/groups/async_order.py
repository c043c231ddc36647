"""Two groups are used asynchronously in one order by all ranks; the handles are awaited in an order of the rank's own.

That is harmless: what has to agree is the order in which operations start.
"""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    """Train with overlapping reductions over rows and columns of a mesh."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    rank = dist.get_rank()
    shuffle = random.Random(rank)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    began = time.monotonic()
    while True:
        model.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        pending = []
        for number, parameter in enumerate(model.parameters()):
            group = mesh.get_group(number % 2)
            pending.append(dist.all_reduce(parameter.grad, group=group, async_op=True))
        late = torch.tensor([time.monotonic() - began])
        pending.append(dist.all_reduce(late, async_op=True))
        shuffle.shuffle(pending)
        for handle in pending:
            handle.wait()
            time.sleep(0.01 * rank)
        if late.item() > 4 * 12:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
