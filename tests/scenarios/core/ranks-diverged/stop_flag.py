"""Early stopping: rank 0 follows the validation loss, and when it has seen enough it tells the others, who do not listen.

Plain ``mp.spawn``, as in the DDP tutorial.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WORLD_SIZE = 3


class EarlyStopping:
    """Says when a loss has not become better for ``patience`` times."""

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience
        self.best = float("inf")
        self.bad = 0

    def update(self, loss: float) -> bool:
        """Whether to stop."""
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(loss, self.best)
        return self.bad >= self.patience


def train_epoch(model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Twenty batches of noise: there is nothing to learn."""
    for _ in range(20):
        loss = (model(torch.randn(8, 6)) - torch.randn(8, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def run(rank: int, port: int) -> None:
    """One rank's training."""
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    stopping = EarlyStopping()
    stop = torch.zeros(1)
    for epoch in range(50):
        train_epoch(model, optimizer)
        if rank == 0:
            val_loss = 1.0 + 0.1 * epoch
            print(f"epoch {epoch}: validation loss {val_loss:.3f}\n", end="", flush=True)
            if stopping.update(val_loss):
                stop.fill_(1)
                dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    probe = socket.socket()  # kept open, so that nobody else is given its port
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    free_port = probe.getsockname()[1]
    mp.spawn(run, args=(free_port,), nprocs=WORLD_SIZE)
