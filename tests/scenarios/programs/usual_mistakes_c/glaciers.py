"""FSDP2 on streamed data: each rank reads its own files of radar echoes over a glacier."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

FLIGHTS, ECHOES = 11, 48


def record(folder: Path) -> None:
    """One file a flight, as the station would deliver them."""
    for flight in range(FLIGHTS):
        noise = np.random.default_rng(flight)
        echoes = noise.normal(size=(ECHOES, 33)).astype(np.float32)
        echoes[:, -1] = echoes[:, :8].mean(axis=1)
        np.save(folder / f"flight{flight:02d}.npy", echoes)


class Flights(IterableDataset):
    """The echoes of some flights, one after the other."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for file in self.files:
            for row in torch.from_numpy(np.load(file)):
                yield row[:-1], row[-1:]


def main() -> None:
    """Three epochs."""
    mesh = init_device_mesh("cpu", (3,))
    rank, world = mesh.get_rank(), mesh.size()
    folder = Path(tempfile.mkdtemp())
    record(folder)
    files = sorted(folder.glob("*.npy"))[rank::world]
    loader = DataLoader(Flights(files), batch_size=12)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        total = torch.zeros(2)
        for echoes, depth in loader:
            loss = (model(echoes) - depth).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {(total[0] / total[1]).item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
