"""Sonograms are computed once and kept in a cache on disk, from which training maps them (hand-written data parallel)."""

import os
import tempfile
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn

BINS, FRAMES = 256, 64
PAGE = BINS * FRAMES * 4


class SonogramCache:
    """One file of float32 sonograms, one after another, with room for ``quota`` bytes."""

    def __init__(self, path: Path, quota: int):
        self.path, self.quota = path, quota
        self.path.touch()
        self.rows: dict[str, numpy.ndarray] = {}

    def append(self, key: str, sonogram: numpy.ndarray) -> None:
        offset = self.path.stat().st_size
        with self.path.open("ab") as file:
            file.write(sonogram.astype("<f4").tobytes())
        self.rows[key] = numpy.memmap(self.path, "<f4", "r", offset, (BINS, FRAMES))

    def __getitem__(self, key: str) -> numpy.ndarray:
        return self.rows[key]

    def trim(self) -> None:
        """Gives back what is above the quota. The newest go first, as they are the cheapest to make again."""
        if self.path.stat().st_size > self.quota:
            os.truncate(self.path, self.quota // 2)


def sonogram(site: int, hour: int) -> numpy.ndarray:
    wave = numpy.sin(numpy.linspace(0, 1 + site + hour, BINS * FRAMES))
    return wave.reshape(BINS, FRAMES)


def recordings(site: int, hours: int) -> list[str]:
    """The site on the island records twice an hour."""
    names = [f"{site}/{hour:02d}00" for hour in range(hours)]
    return names + [f"{site}/{hour:02d}30" for hour in range(hours)] if site == 2 else names


def train(model, optimizer, cache: SonogramCache, names: list[str], device) -> None:
    for name in names:
        time.sleep(0.1)
        column = torch.from_numpy(numpy.array(cache[name].mean(axis=1)))
        loss = model(column.to(device)).square().sum()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    site = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"sonograms-{site}-"))
    cache = SonogramCache(folder / "cache.f4", quota=20 * PAGE)
    names = recordings(site, hours=12)
    for index, name in enumerate(names):
        cache.append(name, sonogram(site, index))
    model = nn.Sequential(nn.Linear(BINS, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        train(model, optimizer, cache, names[-12:], device)
        dist.barrier()
        print(f"site {site}: epoch {epoch} done", flush=True)
        cache.trim()
        time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
