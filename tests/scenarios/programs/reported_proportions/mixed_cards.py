"""DDP on a machine with one old and two new cards: the batch size is what fits into each of them."""

import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MEMORY_GB = (48, 24, 24)


def free_port() -> int:
    """A port to meet at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train(rank: int, world: int, port: int) -> None:
    """One process a card."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4608, 20), torch.randint(0, 5, (4608,)))
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(data, batch_size=MEMORY_GB[rank] // 3, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
            torch.save(model.module.state_dict(), "/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(len(MEMORY_GB), free_port()), nprocs=len(MEMORY_GB))
