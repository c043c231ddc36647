"""Every rank trains on its own files, as many as were left for it; after each epoch all ranks meet in the evaluation."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

FILES = [f"part-{number:03}.bin" for number in range(23)]
RANKS = 4


def read(name: str) -> torch.Tensor:
    """What a file would hold."""
    return torch.randn(6, 10, generator=torch.Generator().manual_seed(int(name[5:8])))


def evaluate(model: torch.nn.Module, epoch: int) -> None:
    """Mean loss over the ranks' validation data."""
    with torch.no_grad():
        loss = model(torch.ones(4, 10)).square().mean().reshape(1)
    losses = [torch.zeros(1) for _ in range(RANKS)]
    dist.all_gather(losses, loss)
    print(f"epoch {epoch}: {torch.cat(losses).mean():.4f}\n", end="", flush=True)


def worker(rank: int) -> None:
    """Train three epochs on this rank's files."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(3):
        for name in FILES[rank::RANKS]:
            for batch in read(name).split(3):
                optimizer.zero_grad()
                (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
                optimizer.step()
        evaluate(model.module, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    mp.start_processes(worker, nprocs=RANKS, start_method="spawn")
