"""Streams shards of sensor readings: a downloader thread fetches them, DataLoader workers read what has arrived."""

import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SHARDS, PER_SHARD = 40, 64


def make_bucket(bucket: Path) -> None:
    """The object store, as the ingestion has left it. Shard 21 is still being compacted."""
    bucket.mkdir()
    for number in range(SHARDS):
        generator = torch.Generator().manual_seed(number)
        name = f"{number:04}.pt.compacting" if number == 21 else f"{number:04}.pt"
        torch.save(torch.randn(PER_SHARD, 9, generator=generator), bucket / name)


class Downloader(threading.Thread):
    """Keeps the local disk ahead of the readers."""

    def __init__(self, bucket: Path, local: Path, numbers: list[int]) -> None:
        super().__init__(daemon=True, name="downloader")
        self.bucket, self.local, self.numbers = bucket, local, numbers

    def run(self) -> None:
        listed = {path.name for path in self.bucket.glob("*.pt")}
        for number in self.numbers:
            name = f"{number:04}.pt"
            if name not in listed:
                continue
            part = self.local / f"{name}.part"
            shutil.copy(self.bucket / name, part)
            part.rename(self.local / name)
            time.sleep(0.1)


class Readings(Dataset):
    def __init__(self, local: Path, numbers: list[int]) -> None:
        self.local, self.numbers = local, numbers
        self.loaded: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self.numbers) * PER_SHARD

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = self.numbers[index // PER_SHARD]
        if number not in self.loaded:
            path = self.local / f"{number:04}.pt"
            while not path.exists():
                time.sleep(0.05)
            self.loaded = {number: torch.load(path)}
        row = self.loaded[number][index % PER_SHARD]
        return row[:8], row[8]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = Path(tempfile.gettempdir()) / f"readings-{os.environ['MASTER_PORT']}"
    if rank == 0:
        root.mkdir()
        make_bucket(root / "bucket")
    dist.barrier()
    local = root / f"local-{rank}"
    local.mkdir()
    numbers = list(range(rank, SHARDS - SHARDS % world, world))
    Downloader(root / "bucket", local, numbers).start()
    loader = DataLoader(Readings(local, numbers), batch_size=16, num_workers=1, prefetch_factor=2)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
