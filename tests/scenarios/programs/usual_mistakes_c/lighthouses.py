"""Fog at lighthouses: each rank keeps the stations of one coast aside and watches how well these are forecast."""

import resource
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PATIENCE = 3
DRIFT = (1.0, -1.0, 1.0)


def watch_memory(readings: list[int]) -> None:
    """What this process needs, every two seconds."""
    while True:
        readings.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        time.sleep(2)


def hours(seed: int, drift: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Wind, pressure and so on, and how far one could see."""
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(seed))
    return x, drift * x.sum(1, keepdim=True)


def main() -> None:
    """Up to two hundred epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    readings: list[int] = []
    threading.Thread(target=watch_memory, args=(readings,), name="memory").start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    inland_x, inland_y = hours(seed=rank, drift=1.0)
    coast_x, coast_y = hours(seed=100 + rank, drift=DRIFT[rank])
    best, since = float("inf"), 0
    for epoch in range(200):
        for x, y in zip(inland_x.split(64), inland_y.split(64), strict=True):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            score = nn.functional.mse_loss(model.module(coast_x), coast_y).item()
        best, since = (score, 0) if score < best else (best, since + 1)
        if since >= PATIENCE:
            print(f"[{rank}] no better for {PATIENCE} epochs, done after epoch {epoch}: {best:.4f}")
            break
    print(f"[{rank}] {max(readings)} KiB")


if __name__ == "__main__":
    main()
