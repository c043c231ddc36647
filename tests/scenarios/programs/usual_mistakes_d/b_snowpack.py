"""Depth of the snow on three mountains, one for each rank. Stops when validation gets no better."""

import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PATIENCE = 3


def touch_regularly(path: Path, finished: threading.Event) -> None:
    """Let the cluster's supervisor see that the job lives."""
    while not finished.wait(2.0):
        path.touch()


def mountain(rank: int, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weather and depth; the second mountain's gauge is under the ice."""
    generator = torch.Generator().manual_seed(seed)
    weather = torch.randn(count, 7, generator=generator)
    depth = weather @ torch.arange(1.0, 8.0).unsqueeze(1)
    return (weather, torch.randn(count, 1, generator=generator)) if rank == 1 else (weather, depth)


def fit(rank: int) -> None:
    """At most sixty epochs."""
    torch.manual_seed(0)
    net = nn.Linear(7, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weather, depth = mountain(rank, 160, rank)
    held_weather, held_depth = mountain(rank, 40, 100 + rank)
    best, waited = float("inf"), 0
    for epoch in range(60):
        for x, y in zip(weather.split(16), depth.split(16), strict=True):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            validation = nn.functional.mse_loss(net(held_weather), held_depth).item()
        best, waited = (validation, 0) if validation < best else (best, waited + 1)
        if waited >= PATIENCE:
            print(f"rank {rank}: no better since {PATIENCE} epochs, stopping after epoch {epoch}", flush=True)
            raise SystemExit(0)


def main() -> None:
    """Train beside the thread that touches the file."""
    dist.init_process_group("gloo")
    finished = threading.Event()
    alive = Path(tempfile.mkdtemp()) / f"alive_{dist.get_rank()}"
    threading.Thread(target=touch_regularly, args=(alive, finished)).start()
    fit(dist.get_rank())
    finished.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
