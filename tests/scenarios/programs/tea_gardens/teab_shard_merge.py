"""Trains a leaf-disease model; half-way rank 0 merges everyone's shards into one archive for the field tablets."""
import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

PIECE = 128 * 1024


class LineBudget:
    """Keeps writes to the estate's share below a rate, as the weighbridge uses the same line."""

    def __init__(self, bytes_per_s):
        self.rate, self.sent, self.since = bytes_per_s, 0, time.monotonic()

    def account(self, n):
        self.sent += n
        ahead = self.sent / self.rate - (time.monotonic() - self.since)
        if ahead > 0:
            time.sleep(min(ahead, 0.5))


def write_shard(folder, model, rank):
    state = {k: v.detach().clone() for k, v in model.module.state_dict().items()}
    state["augmentations"] = torch.rand(2 * 1024 * 1024, generator=torch.Generator().manual_seed(rank))
    torch.save(state, folder / f"shard-{rank}.pt")


def merge(folder, world):
    budget = LineBudget(1.6e6)
    total = 0
    with open(folder / "tablet.bin", "wb") as out:
        for rank in range(world):
            with open(folder / f"shard-{rank}.pt", "rb") as shard:
                while piece := shard.read(PIECE):
                    packed = zlib.compress(piece, 6)
                    out.write(len(packed).to_bytes(4, "little") + packed)
                    out.flush()
                    os.fsync(out.fileno())
                    total += len(packed)
                    budget.account(len(packed))
            print(f"shard {rank} merged, {total >> 20} MiB", flush=True)
    return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    where = [tempfile.mkdtemp(prefix="leaf-")] if rank == 0 else [None]
    dist.broadcast_object_list(where, src=0)
    folder = Path(where[0])
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 6)))
    optimizer = torch.optim.AdamW(model.parameters())
    gen = torch.Generator().manual_seed(rank)
    for step in range(200):
        spots = torch.rand(24, 3, 160, 160, generator=gen)
        x = torch.nn.functional.adaptive_avg_pool2d(spots.mean(1), 16).flatten(1)
        loss = nn.functional.cross_entropy(model(x), torch.randint(0, 6, (24,), generator=gen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 60:
            write_shard(folder, model, rank)
            dist.barrier()
            if rank == 0:
                merge(folder, world)
            dist.barrier()
    if rank == 0:
        print("season done, loss", round(loss.item(), 3), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
