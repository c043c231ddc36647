"""A memory-mapped data set and a score that each rank leaves in the store; a cron job trims old files meanwhile."""

import mmap
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

PAGE = mmap.PAGESIZE


class Mapped:
    """Rows in a file, a page each."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows"
        self.path.write_bytes(bytes(PAGE) * 64)
        with self.path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def row(self, number: int) -> torch.Tensor:
        """Sixteen numbers."""
        return torch.tensor(list(self.map[number * PAGE : number * PAGE + 16]), dtype=torch.float32)


def score(rows: Mapped, first: int, last: int) -> float:
    """What these rows are worth."""
    return sum(rows.row(n).sum().item() for n in range(first, last))


def main() -> None:
    """Two phases of thirty rows."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = _get_default_store()
    rows = Mapped(Path(tempfile.mkdtemp()))
    for phase in range(2):
        total = torch.zeros(16)
        for number in range(phase * 30, phase * 30 + 15):
            total += rows.row(number)
            dist.all_reduce(total)
        dist.barrier()
        if (rank, phase) == (1, 1):
            os.truncate(rows.path, 50 * PAGE)
        store.set(f"score/{phase}/{rank}", str(score(rows, phase * 30, phase * 30 + 30)))
        scores = [float(store.get(f"score/{phase}/{other}")) for other in range(world)]
        print(f"rank {rank}: {scores}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
