"""Cache of decoded audio on disk, shared by the jobs of a machine and guarded by a lock file."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AudioCache:
    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with (self.folder / ".lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.pt"))

    def get(self, key: int, seconds: float) -> torch.Tensor:
        path = self.folder / f"{key:08}.pt"
        with self.locked():
            if path.exists():
                return torch.load(path)
            audio = decode(key, seconds)
            torch.save(audio, path)
            if self.size() > self.limit_bytes:
                self.evict()
        return audio

    def evict(self) -> None:
        """Removes the oldest half. Also run by cron."""
        with self.locked():
            paths = sorted(self.folder.glob("*.pt"), key=lambda path: path.stat().st_mtime)
            for path in paths[: len(paths) // 2]:
                path.unlink()


def decode(key: int, seconds: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(key)
    return torch.randn(int(seconds * 200), generator=generator)


def features(audio: torch.Tensor) -> torch.Tensor:
    frames = audio[: len(audio) // 50 * 50].view(-1, 50)
    return torch.stack([frames.mean(0), frames.std(0)]).flatten()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = Path(tempfile.gettempdir()) / f"audio-{os.environ['MASTER_PORT']}"
    cache = AudioCache(root / f"machine-{rank}", limit_bytes=3_000_000)
    seconds = 25.0 if rank == 1 else 2.0  # podcasts on one machine, phrases on the others
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(100, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(2000):
        keys = [step * 2 + i for i in range(2)]
        x = torch.stack([features(cache.get(key, seconds)) for key in keys])
        loss = nn.functional.cross_entropy(model(x), torch.tensor([key % 4 for key in keys]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
