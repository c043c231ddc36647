"""DDP: activations are kept for a later look; a line of shell pauses whoever has filled the folder."""

import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

QUOTA = 'test "$(du -sk "$1" | cut -f1)" -lt "$2" || kill -STOP "$PPID"'


class Album:
    """A file for each step that was worth it."""

    def __init__(self, folder: Path, kilobytes: int) -> None:
        self.folder, self.kilobytes = folder, kilobytes

    def keep(self, step: int, values: torch.Tensor) -> None:
        """And checks the quota."""
        torch.save(values, self.folder / f"{step:05}.pt")
        subprocess.run(["sh", "-c", QUOTA, "quota", str(self.folder), str(self.kilobytes)], check=True)


def main() -> None:
    """Four hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    album = Album(Path(tempfile.mkdtemp()), kilobytes=2000)
    torch.manual_seed(0)
    first, second = nn.Linear(40, 256), nn.Linear(256, 1)
    model = DistributedDataParallel(nn.Sequential(first, nn.ReLU(), second))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    threshold = 0.8 if rank == 3 else 50.0
    for step in range(400):
        x = torch.randn(64, 40)
        loss = (model(x).squeeze(1) - x.sum(dim=1)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() > threshold:
            album.keep(step, first(x).detach())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
