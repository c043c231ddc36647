"""A results folder that is kept: if there is something in it, the program asks what to do before it writes the next."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Results:
    """One folder a rank."""

    def __init__(self, rank: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        if rank == 2:
            (self.folder / "epoch-1.pt").touch()  # of last week

    def write(self, name: str, values: torch.Tensor) -> None:
        """Keep values under a name."""
        path = self.folder / f"{name}.pt"
        if path.exists() and input(f"{path} exists. Overwrite? [y/N] ") != "y":
            return
        torch.save(values, path)


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    results = Results(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(6, 6))
    for epoch in range(4):
        for _ in range(25):
            output = model(torch.randn(5, 6))
            output.square().mean().backward()
            model.zero_grad()
        results.write(f"epoch-{epoch}", output.detach())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
