"""Feature store with a cache on the machine's disk. Vocabularies are put together from all ranks, once."""

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

COLUMNS = ("country", "device", "channel")


class DiskCache:
    """Small JSON values by key, each rank with its own scratch folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / (hashlib.sha1(key.encode()).hexdigest()[:12] + ".json")

    def get_or_make(self, key: str, make):
        path = self._path(key)
        if path.exists():
            return json.loads(path.read_text())
        value = make()
        path.write_text(json.dumps(value))
        return value

    def put(self, key: str, value: object) -> None:
        self._path(key).write_text(json.dumps(value))


class FeatureStore:
    def __init__(self, rank: int, cache: DiskCache) -> None:
        self.rank, self.cache = rank, cache

    def local_values(self, column: str) -> list[str]:
        return sorted(f"{column}-{(7 * self.rank + i) % 11}" for i in range(5))

    def vocabulary(self, column: str) -> list[str]:
        return self.cache.get_or_make(f"vocabulary/{column}", lambda: self._merge(column))

    def _merge(self, column: str) -> list[str]:
        parts: list[list[str]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, self.local_values(column))
        return sorted({value for part in parts for value in part})


def smoke_test(store: FeatureStore) -> None:
    """Before the job: does the encoder take the store's values? One column on one rank is enough to see that."""
    values = store.local_values("device")
    assert all(value.isascii() for value in values)
    store.cache.put("vocabulary/device", values)


def train_on(column: str, size: int, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(60):
        ids = torch.randint(0, size, (32,), generator=generator)
        loss = nn.functional.mse_loss(model(ids).squeeze(1), (ids % 2).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    print(f"[{seed}] {column}: {loss.item():.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scratch = Path(tempfile.gettempdir()) / f"features-{os.environ['MASTER_PORT']}" / str(rank)
    store = FeatureStore(rank, DiskCache(scratch))
    if rank == 0:
        smoke_test(store)
    torch.manual_seed(0)
    model = DDP(nn.Embedding(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for column in COLUMNS:
        vocabulary = store.vocabulary(column)
        train_on(column, len(vocabulary), model, optimizer, seed=rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
