"""Demand forecast per store region, each rank with its own region as validation set. Started with mp.spawn."""

import os
import socket
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD, EPOCHS, STEPS = 3, 60, 12


@dataclass
class EarlyStopping:
    patience: int
    min_delta: float = 1e-4
    best: float = float("inf")
    bad_epochs: int = 0

    def should_stop(self, value: float) -> bool:
        if value < self.best - self.min_delta:
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def region(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The history of a region. In the third one a competitor has opened, so that demand is another."""
    generator = torch.Generator().manual_seed(100 + number)
    x = torch.randn(128, 16, generator=generator)
    weights = torch.ones(16)
    return x, x @ (weights * (0.15 if number == 2 else 1.0))


def worker(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(WORLD))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(3)
    linear = nn.Linear(16, 1)
    nn.init.zeros_(linear.weight)
    model = DDP(linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    held_x, held_y = region(rank)
    stopping = EarlyStopping(patience=4)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            x = torch.randn(32, 16, generator=generator)
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        with torch.no_grad():
            held = nn.functional.mse_loss(linear(held_x).squeeze(1), held_y).item()
        print(f"[{rank}] epoch {epoch}: {held:.4f}", flush=True)
        if stopping.should_stop(held):
            break
    report = [None] * WORLD
    dist.all_gather_object(report, {"rank": rank, "best": stopping.best})
    if rank == 0:
        print(report, flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)
