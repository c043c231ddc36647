"""Writes the table of embeddings to a slow disk from rank 0, with a digest, and lets all ranks check the digest."""

import hashlib
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ThrottledFile:
    """Network storage that takes so many bytes a second from each client."""

    def __init__(self, path: Path, rate: int) -> None:
        self.file, self.rate = path.open("wb"), rate
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()
        os.fsync(self.file.fileno())
        self.digest.update(data)
        time.sleep(len(data) / self.rate)

    def close(self) -> str:
        self.file.close()
        return self.digest.hexdigest()


def export(table: torch.Tensor, path: Path, rate: int = 1_600_000, chunk: int = 2000) -> str:
    out = ThrottledFile(path, rate)
    for rows in table.split(chunk):
        out.write(rows.contiguous().numpy().tobytes())
    return out.close()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.gettempdir()) / f"embeddings-{os.environ['MASTER_PORT']}.bin"
    torch.manual_seed(0)
    embedding = nn.Embedding(60_000, 64)
    model = DDP(nn.Sequential(nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(80):
        ids = torch.randint(0, 60_000, (32,), generator=generator)
        loss = nn.functional.cross_entropy(model(embedding(ids).detach()), ids % 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    box: list[str | None] = [None]
    if rank == 0:
        box[0] = export(embedding.weight.detach(), path)
    dist.broadcast_object_list(box, src=0)
    seen = hashlib.sha256(path.read_bytes()).hexdigest()
    assert seen == box[0]
    dist.barrier()
    if rank == 0:
        path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
