"""Ember detector: sharded checkpoint of every process, joined to one file for the field tablets."""
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CHUNK = 256 * 1024


class DiskBudget:
    """The tablets' sync runs on the same disk: at most so many bytes a second."""

    def __init__(self, rate):
        self.rate, self.begin, self.spent = rate, time.monotonic(), 0

    def spend(self, count):
        self.spent += count
        ahead = self.spent / self.rate - (time.monotonic() - self.begin)
        if ahead > 0:
            time.sleep(ahead)


class ShardedCheckpoint:
    def __init__(self, folder, rank, world):
        self.folder, self.rank, self.world = Path(folder), rank, world

    def save_part(self, model, tiles):
        torch.save({"model": model.state_dict(), "tiles": tiles}, self.folder / f"part{self.rank}.pt")

    def join(self, rate):
        budget, digest = DiskBudget(rate), hashlib.sha256()
        with open(self.folder / "joined.bin", "wb") as out:
            for part in range(self.world):
                with open(self.folder / f"part{part}.pt", "rb") as source:
                    while chunk := source.read(CHUNK):
                        digest.update(chunk)
                        out.write(chunk)
                        out.flush()
                        os.fsync(out.fileno())
                        budget.spend(len(chunk))
                print(f"joined part {part}: {out.tell() / 1e6:.1f} MB", flush=True)
        return digest.hexdigest()


def train(model, optimizer, generator, steps):
    for _ in range(steps):
        x = torch.randn(64, 30, generator=generator)
        loss = nn.functional.mse_loss(model(x), x[:, :1] * x[:, 1:2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp(prefix="ember_") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    print(f"rank {rank} loss {train(model, optimizer, generator, 120):.4f}", flush=True)
    checkpoint = ShardedCheckpoint(box[0], rank, world)
    checkpoint.save_part(model.module, torch.rand(1_200_000, generator=generator))
    dist.barrier()
    if rank == 0:
        print("sha256", checkpoint.join(rate=1_050_000)[:16], flush=True)
    dist.barrier()
    print(f"rank {rank} loss {train(model, optimizer, generator, 120):.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(box[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
