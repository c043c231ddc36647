"""DDP over shards of compressed text; two workers a process read them, and short lines are left out."""

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def write_shards(folder: Path, rank: int, count: int) -> list[Path]:
    """What a preparation job has left: shards of 80 lines, of which some are a word only."""
    paths = []
    for number in range(count):
        words = 3 if (rank, number) in ((1, 1), (1, 4)) else 40
        lines = [" ".join(["word"] * (1 if n % 2 and words == 3 else 40)) for n in range(80)]
        paths.append(folder / f"part-{number:03}.txt.gz")
        paths[-1].write_bytes(gzip.compress("\n".join(lines).encode()))
    return paths


class Text(IterableDataset):
    """Lines of at least eight words, as numbers."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Each worker has its own shards."""
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            for line in gzip.decompress(path.read_bytes()).decode().splitlines():
                if len(line.split()) >= 8:
                    yield torch.tensor([len(word) for word in line.split()[:8]], dtype=torch.float32)


def main() -> None:
    """Three epochs, and a checkpoint after each."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp())
    loader = DataLoader(Text(write_shards(folder, rank, 6)), batch_size=8, num_workers=2, drop_last=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.module.state_dict(), folder / f"epoch-{epoch}.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
