"""Satellite scenes are fetched when they are needed. The mirror of the faculty is moody, so requests are repeated."""

import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class MirrorError(Exception):
    pass


class Mirror:
    """Stands for the HTTP client: a scene comes in chunks, and some requests are refused at first."""

    def __init__(self, refusals: dict[str, int]) -> None:
        self.refusals = refusals

    def fetch(self, name: str):
        if self.refusals.get(name, 0) > 0:
            self.refusals[name] -= 1
            raise MirrorError("503 Service Unavailable")
        rng = torch.Generator().manual_seed(sum(name.encode()))
        for _ in range(12):
            time.sleep(0.05)
            yield torch.randn(16, 8, generator=rng).numpy().tobytes()


def download(mirror: Mirror, name: str, folder: Path, attempts: int = 8) -> Path:
    target, jitter = folder / name, random.Random(name)
    for attempt in range(attempts):
        try:
            with target.open("wb") as file:
                for chunk in mirror.fetch(name):
                    file.write(chunk)
            return target
        except MirrorError as error:
            pause = min(0.6 * 2**attempt + 0.1 * jitter.random(), 30)
            print(f"{name}: {error}, again in {pause:.1f} s", flush=True)
            time.sleep(pause)
    raise RuntimeError(f"{name} cannot be had")


def scene(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    bands = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(-1, 8)
    return bands, (bands[:, 3] > bands[:, 0]).long()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"scenes-{os.environ['MASTER_PORT']}-{rank}")
    folder.mkdir(exist_ok=True)
    mirror = Mirror({"scene-1-2.bin": 4})
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for number in range(3):
        bands, water = scene(download(mirror, f"scene-{rank}-{number}.bin", folder))
        for x, y in zip(bands.split(16), water.split(16)):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"scene {number}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
