"""Training whose checkpoints go to slow storage, in pieces that are flushed one by one and verified afterwards."""

import hashlib
import io
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class BucketFile:
    """An object of a bucket: parts are uploaded, then put together."""

    def __init__(self, path, part_size, pause):
        self.path = path
        self.part_size = part_size
        self.pause = pause

    def upload(self, data):
        digest = hashlib.sha256()
        with self.path.open("wb") as file:
            for start in range(0, len(data), self.part_size):
                part = data[start : start + self.part_size]
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
                digest.update(part)
                time.sleep(self.pause)
        return digest.hexdigest()

    def verify(self, expected):
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while part := file.read(self.part_size):
                digest.update(part)
        if digest.hexdigest() != expected:
            raise OSError(f"{self.path} differs from what was uploaded")


def save_checkpoint(model, optimizer, step, folder):
    if dist.get_rank() == 0:
        buffer = io.BytesIO()
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, buffer)
        target = BucketFile(folder / f"step{step}.pt", part_size=64 * 1024, pause=0.11)
        target.verify(target.upload(buffer.getvalue()))
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(128, 1600), nn.ReLU(), nn.Linear(1600, 128)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder = Path(tempfile.gettempdir(), f"bucket-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    for step in range(1, 81):
        x = torch.randn(16, 128)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % 40 == 0:
            save_checkpoint(model, optimizer, step, folder)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f} saved", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
