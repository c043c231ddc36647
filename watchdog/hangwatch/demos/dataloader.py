"""A DataLoader worker of one rank is stuck reading a file; the rank waits for its worker, the other ranks wait for that rank.

The file is a named pipe without a writer. Run by ``torchrun --nproc-per-node 2``.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STALLED_IMAGE = 23


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


class Images(Dataset):
    """Forty small images in files of their own; reading one of them never returns."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"image-{number}.raw" for number in range(40)]
        for number, path in enumerate(self.paths):
            if number == STALLED_IMAGE:
                os.mkfifo(path)
            else:
                path.write_bytes(bytes(16))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return read_image(self.paths[index])


def read_image(path: Path) -> torch.Tensor:
    """Return the pixels of an image."""
    # Opened for writing too, so that it blocks in read(), as on a hanging file system, and not in open().
    with path.open("r+b", buffering=0) as file:
        return torch.tensor(list(file.read(16)), dtype=torch.float32)


def main() -> None:
    """One epoch in batches of two."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory(prefix="hangwatch-demo-") as folder:
        images = Images(Path(folder))
        sampler = DistributedSampler(images, shuffle=False)
        for step, batch in enumerate(DataLoader(images, batch_size=2, sampler=sampler, num_workers=1), 1):
            mean = batch.mean()
            dist.all_reduce(mean)
            say(rank, f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
