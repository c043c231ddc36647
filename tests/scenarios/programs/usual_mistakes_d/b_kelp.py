"""Growth of kelp from logbook files: each worker streams its own files."""

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


def write_logbooks(folder: Path, count: int) -> None:
    """A file for each plot, 40 rows each."""
    generator = torch.Generator().manual_seed(4)
    for plot in range(count):
        with (folder / f"plot_{plot:02d}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(torch.rand(40, 5, generator=generator).tolist())


class Logbooks(IterableDataset):
    """Rows of the files that belong to this worker."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        """Choose the files."""
        self.files = sorted(folder.glob("*.csv"))[rank::world]

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Row by row."""
        for path in self.files:
            with path.open(newline="") as file:
                for row in csv.reader(file):
                    yield torch.tensor([float(value) for value in row])


def main() -> None:
    """Two epochs and the loss of each."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp(prefix="kelp-") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    if rank == 0:
        write_logbooks(Path(folder[0]), 8)
    dist.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Logbooks(Path(folder[0]), rank, world), batch_size=10)
    for epoch in range(2):
        total, batches = 0.0, 0
        for rows in loader:
            loss = nn.functional.mse_loss(model(rows[:, :4]), rows[:, 4:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, batches = total + loss.item(), batches + 1
        means = [None] * world
        dist.all_gather_object(means, total / batches)
        if rank == 0:
            print(f"epoch {epoch}: {sum(means) / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
