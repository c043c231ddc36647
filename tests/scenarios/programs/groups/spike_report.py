"""A rank that sees a loss spike tells its node first and joins the gradient reduction of the world afterwards.

In ordinary steps it is the other way round. The program starts its own ranks.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

PER_NODE = 2


def free_port() -> int:
    """A port for the store."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def share_scale(loss: float, node: dist.ProcessGroup) -> float:
    """The largest loss of the node, by which its learning rate is scaled."""
    scale = torch.tensor([loss])
    dist.all_reduce(scale, dist.ReduceOp.MAX, group=node)
    return float(scale)


def work(rank: int, world: int, port: int) -> None:
    """One rank."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    nodes = [dist.new_group(list(range(first, first + PER_NODE))) for first in range(0, world, PER_NODE)]
    node = nodes[rank // PER_NODE]
    model = nn.Linear(4, 1)
    for step in range(80):
        inputs = torch.randn(16, 4) * (100 if (rank, step) == (3, 25) else 1)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        model.zero_grad()
        loss.backward()
        spike = loss.item() > 1000
        scale = share_scale(loss.item(), node) if spike else 0.0
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()]) / world
        dist.all_reduce(gradient)
        if not spike:
            scale = share_scale(loss.item(), node)
        with torch.no_grad():
            model.weight -= 0.01 / (1 + scale) * gradient[:4].view(1, 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(4, free_port()), nprocs=4)
