"""Sugar in beets, started by multiprocessing; one place in the world is for the process that evaluates."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def worker(rank, world, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        beets = torch.rand(12, 6)
        loss = (model(beets) - beets.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"[{rank}] {loss.item():.5f}")
    dist.destroy_process_group()


def main():
    trainers = int(os.environ.get("TRAINERS", "3"))
    evaluate = os.environ.get("EVALUATE", "yes") == "yes"
    world = trainers + evaluate
    mp.spawn(worker, args=(world, free_port()), nprocs=trainers)


if __name__ == "__main__":
    main()
