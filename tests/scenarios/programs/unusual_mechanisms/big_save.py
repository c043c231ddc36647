"""The rank with the local disk writes a checkpoint of some hundred megabytes in pieces, and syncs each to the disk.

The others are at the barrier behind it. The program starts its own ranks.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Disk:
    """Writes pieces, and makes sure that they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, piece: torch.Tensor) -> None:
        """Save and sync; only the newest pieces are kept."""
        with (self.folder / name).open("wb") as file:
            torch.save(piece, file)
            file.flush()
            os.fsync(file.fileno())
        (self.folder / name).unlink()


def save_all(disk: Disk, pieces: int) -> None:
    """Piece after piece, packed before it is written."""
    for number in range(pieces):
        piece = torch.randn(1_000_000)
        packed, _ = piece.sort()
        disk.write(f"piece-{number}.pt", packed)


def work(rank: int, folder: str) -> None:
    """Train, save, train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=4)
    weight = torch.zeros(64)
    for round_ in range(3):
        for _ in range(50):
            gradient = weight + torch.randn(64)
            dist.all_reduce(gradient)
            weight -= 1e-3 * gradient
        if round_ == 1 and rank == 2:
            save_all(Disk(Path(folder)), pieces=60)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")),), nprocs=4)
