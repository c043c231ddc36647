"""FSDP2 on readings of weather balloons: a DataLoader reads the spool folder, file by file."""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

BALLOONS = 60


def fill(folder: Path) -> None:
    """What the station has written up to now: finished ascents, and the one that is on its way."""
    for number in range(BALLOONS - 1):
        noise = np.random.default_rng(number)
        (folder / f"ascent{number:03d}.bin").write_bytes(noise.normal(size=33).astype(np.float32).tobytes())
    os.mkfifo(folder / f"ascent{BALLOONS - 1:03d}.bin")


class Ascents(Dataset):
    """One ascent an item: thirty-two heights, and the pressure to be predicted."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.paths = sorted(folder.glob("ascent*.bin"))[rank::world]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        values = np.frombuffer(self.paths[index].read_bytes(), dtype=np.float32).copy()
        return torch.from_numpy(values[:-1]), torch.from_numpy(values[-1:])


def main() -> None:
    """Two epochs."""
    mesh = init_device_mesh("cpu", (3,))
    rank, world = mesh.get_rank(), mesh.size()
    shared = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(shared, src=0)
    if rank == 0:
        fill(Path(shared[0]))
    dist.barrier()
    loader = DataLoader(Ascents(Path(shared[0]), rank, world), batch_size=2, num_workers=1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        for heights, pressure in loader:
            loss = (model(heights) - pressure).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
