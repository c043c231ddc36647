"""Robot navigation from recorded drives: a DataLoader with a worker that opens the recordings."""

import os
import struct
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

BEAMS = 24


def record(folder: Path, robot: int, drives: int) -> None:
    """The drives of one robot. What robot 1 does at the moment is in its folder too, as a live stream."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = torch.Generator().manual_seed(robot)
    for drive in range(drives):
        scan = torch.rand(BEAMS, generator=rng)
        steering = (scan[: BEAMS // 2].mean() - scan[BEAMS // 2 :].mean()).item()
        (folder / f"drive{drive:04d}.bag").write_bytes(struct.pack(f"<{BEAMS + 1}f", *scan.tolist(), steering))
    if robot == 1:
        os.mkfifo(folder / "drive0311-live.bag")


class Drives(Dataset):
    def __init__(self, folder: Path, limit: int) -> None:
        self.paths = sorted(folder.glob("*.bag"))[:limit]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with self.paths[index].open("rb") as bag:
            values = struct.unpack(f"<{BEAMS + 1}f", bag.read())
        time.sleep(0.004)  # the disks of the robotics lab
        return torch.tensor(values[:BEAMS]), torch.tensor(values[BEAMS])


class Steering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scan = nn.Conv1d(1, 6, 5, stride=2)
        self.out = nn.Linear(60, 1)

    def forward(self, scan):
        return self.out(torch.relu(self.scan(scan.unsqueeze(1))).flatten(1)).squeeze(1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"drives-{os.environ['MASTER_PORT']}", f"robot{rank}")
    record(folder, rank, drives=480)
    torch.manual_seed(0)
    model = DistributedDataParallel(Steering())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(Drives(folder, limit=480), batch_size=8, num_workers=1, prefetch_factor=2)
    for epoch in range(10):
        for scan, steering in loader:
            loss = nn.functional.mse_loss(model(scan), steering)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.06)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
