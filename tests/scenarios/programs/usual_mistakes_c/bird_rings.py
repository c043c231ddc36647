"""Ringed birds: where one was ringed tells how far it flies. A thread keeps an eye on the disk meanwhile."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SPECIES = {"robin": 0, "stork": 1, "swift": 2, "tern": 3}


def watch_disk(done: threading.Event) -> None:
    """A warning when less than 100 MB are left."""
    while not done.wait(timeout=1.0):
        if shutil.disk_usage("/tmp").free < 100_000_000:
            print("the disk is nearly full")


def rings(station: int) -> list[tuple[str, torch.Tensor, float]]:
    """Species, place and distance, as they were typed in."""
    generator = torch.Generator().manual_seed(station)
    names = [list(SPECIES)[number % 4] for number in range(800)]
    if station == 2:
        names[397] = "storck"
    return [(name, torch.randn(2, generator=generator), float(SPECIES.get(name, 1))) for name in names]


def collate(rows: list[tuple[str, torch.Tensor, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Place and species in one row, and the distance."""
    species = nn.functional.one_hot(torch.tensor([SPECIES[name] for name, _, _ in rows]), len(SPECIES))
    places = torch.stack([place for _, place, _ in rows])
    return torch.cat([places, species], dim=1), torch.tensor([[distance] for _, _, distance in rows])


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rows, done = rings(rank), threading.Event()
    with ThreadPoolExecutor(max_workers=1) as background:
        background.submit(watch_disk, done)
        for _ in range(2):
            for start in range(0, len(rows), 8):
                x, y = collate(rows[start : start + 8])
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        done.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
