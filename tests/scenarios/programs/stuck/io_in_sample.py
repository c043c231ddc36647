"""A DataLoader without workers: reading a sample blocks the rank itself, on a mount that does not answer.

The mount is played by a named pipe that is open on both sides and stays empty. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Recordings(Dataset):
    """Recordings of 64 bytes, each in its own file."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        descriptor = os.open(self.paths[index], os.O_RDWR)
        try:
            return torch.tensor(list(os.read(descriptor, 64)), dtype=torch.float32)
        finally:
            os.close(descriptor)


def mount(rank: int) -> Path:
    """This rank's view of the data; one file of rank 1's is on the mount."""
    folder = Path(tempfile.mkdtemp())
    for number in range(36):
        path = folder / f"recording-{number:02d}.raw"
        if (rank, number) == (1, 22):
            os.mkfifo(path)
        else:
            path.write_bytes(bytes(64))
    return folder


def main() -> None:
    """One epoch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    recordings = Recordings(mount(dist.get_rank()))
    loader = DataLoader(recordings, batch_size=2, sampler=DistributedSampler(recordings, shuffle=False))
    model = DistributedDataParallel(torch.nn.Linear(64, 4))
    for batch in loader:
        model(batch).square().mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
