"""Clips are decoded by the workers of a DataLoader, once each; a marker beside a clip says that somebody is at it."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    """Clips with a cache of their decoded frames."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count

    def __len__(self) -> int:
        return self.count

    def decode(self, number: int) -> torch.Tensor:
        """The frames."""
        return torch.sin(torch.arange(12.0) * (number + 1))

    def __getitem__(self, number: int) -> torch.Tensor:
        done, busy = self.folder / f"{number}.pt", self.folder / f"{number}.busy"
        while busy.exists():
            time.sleep(0.25)
        if not done.exists():
            busy.touch()
            torch.save(self.decode(number), done)
            busy.unlink()
        return torch.load(done)


def prepare(rank: int) -> Path:
    """The folder of this node's cache, as the last job has left it."""
    folder = Path(tempfile.mkdtemp())
    if rank == 1:
        (folder / "77.busy").touch()
    return folder


def main() -> None:
    """Thirty steps of four clips."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    clips = Clips(prepare(dist.get_rank()), 120)
    model = DistributedDataParallel(nn.Linear(12, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for frames in DataLoader(clips, batch_size=4, num_workers=2):
        optimizer.zero_grad()
        model(frames).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
