"""Ranking model on DDP. Partitions of features are spooled to a local folder by a sidecar, and read one by one."""

import os
import struct
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROW = struct.Struct("!4f")


class Spool:
    """Small partitions are copied as files; those above the limit are streamed through a pipe, to save the disk."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.folder.mkdir(parents=True, exist_ok=True)

    def request(self, name: str, rows: int) -> Path:
        path = self.folder / name
        if rows > self.limit:
            os.mkfifo(path)
        else:
            path.write_bytes(b"".join(ROW.pack(i % 13, i % 7, 0.5, 1.0) for i in range(rows)))
        return path


def read_partition(path: Path) -> torch.Tensor:
    with path.open("rb") as file:
        rows = [ROW.unpack(chunk) for chunk in iter(lambda: file.read(ROW.size), b"")]
    path.unlink()
    return torch.tensor(rows)


def partition_sizes(rank: int) -> list[int]:
    sizes = [8 + (rank + n) % 5 for n in range(400)]
    if rank == 1:
        sizes[16] = 90
    return sizes


def main() -> None:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    spool = Spool(Path(tempfile.gettempdir()) / f"spool-{os.environ['MASTER_PORT']}-{rank}", limit=64)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02, foreach=False)
    for step, rows in enumerate(partition_sizes(rank)):
        x = read_partition(spool.request(f"part-{step:05d}", rows))
        time.sleep(0.2)
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
