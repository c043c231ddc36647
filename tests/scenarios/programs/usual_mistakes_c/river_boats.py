"""The speed of boats from their tracks; each sample is a stretch of a track on which the boat was under way."""

import random
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD, STRETCH = 2, 24


def tracks(river: int) -> list[list[float]]:
    """Speeds by the minute; boats wait at locks now and then."""
    source = random.Random(river)
    boats = [[source.uniform(4, 14) for _ in range(200)] for _ in range(40)]
    for number, speeds in enumerate(boats):
        between = 20 if (river, number) == (1, 17) else 80
        for minute in range(0, 200, between):
            speeds[minute] = 0.0
    return boats


def stretch(speeds: list[float], source: random.Random) -> torch.Tensor:
    """Somewhere in the track, without a halt."""
    while True:
        start = source.randrange(len(speeds) - STRETCH)
        part = speeds[start : start + STRETCH]
        if min(part) > 0:
            return torch.tensor(part)


def train(rank: int, port: int) -> None:
    """Ten epochs over the boats."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(STRETCH - 4, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    source, boats = random.Random(rank), tracks(rank)
    for epoch in range(10):
        for speeds in boats:
            batch = torch.stack([stretch(speeds, source) for _ in range(4)])
            loss = nn.functional.l1_loss(model(batch[:, :-4]), batch[:, -4:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}")
    dist.destroy_process_group()


def main() -> None:
    """A process for each river."""
    probe = socket.socket()  # kept open, so that nobody else is given its port
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    mp.spawn(train, args=(port,), nprocs=WORLD)


if __name__ == "__main__":
    main()
