"""Training from binary shards with DataLoader workers; a shard may be a pipe from the decompressor."""

import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset[torch.Tensor]):
    """Every worker reads its part of the shards."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers]:
            with path.open("rb") as file:
                while record := file.read(32):
                    yield torch.tensor(struct.unpack("<8f", record))


def prepare(rank: int) -> list[Path]:
    """Eight shards; the decompressor of rank 2's sixth was never started."""
    folder = Path(tempfile.mkdtemp())
    paths = [folder / f"shard-{n}" for n in range(8)]
    for path in paths:
        path.write_bytes(struct.pack("<8f", *range(8)) * 40)
    if rank == 2:
        paths[5].unlink()
        os.mkfifo(paths[5])
    return paths


def main() -> None:
    """One epoch over 320 records."""
    dist.init_process_group("gloo")
    loader = DataLoader(Shards(prepare(dist.get_rank())), batch_size=4, num_workers=2)
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
