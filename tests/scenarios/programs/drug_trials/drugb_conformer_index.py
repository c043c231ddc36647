"""Conformer retrieval: the first process builds the shape index once, everybody maps it and trains on it."""
import math
import tempfile
import time
from array import array
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DIM = 32
BLOCKS = 60


def shape_block(number: int, rows: int = 400) -> bytes:
    values = array("f")
    for row in range(rows):
        base = number * rows + row
        values.extend(math.sin(base * 0.013 * (k + 1)) + math.cos(base * 0.007 * k) for k in range(DIM))
    return values.tobytes()


def build_index(path: Path, seconds_per_block: float = 0.22):
    """Writes the index block by block, throttled to what the shared volume allows."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as sink:
        for number in range(BLOCKS):
            began = time.monotonic()
            sink.write(shape_block(number))
            sink.flush()
            time.sleep(max(0.0, seconds_per_block - (time.monotonic() - began)))
            if number % 12 == 0:
                print(f"index: {sink.tell() / 1e6:.1f} MB", flush=True)
    partial.rename(path)


def pretrain(model, optimizer, steps):
    for step in range(steps):
        x = torch.randn(64, DIM)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def retrieve(model, optimizer, index, steps):
    for step in range(steps):
        rows = index[torch.randint(0, len(index), (128,))]
        loss = (model(rows) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    place = [tempfile.mkdtemp(prefix="shapes_") if rank == 0 else None]
    dist.broadcast_object_list(place, src=0)
    path = Path(place[0]) / "shapes.f32"
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(DIM, 16), nn.Tanh(), nn.Linear(16, DIM)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    pretrain(model, optimizer, steps=120)
    if rank == 0:
        build_index(path)
    dist.barrier()
    values = array("f", path.read_bytes())
    index = torch.frombuffer(values, dtype=torch.float32).reshape(-1, DIM)
    loss = retrieve(model, optimizer, index, steps=150)
    print(f"process {rank}: {len(index)} conformers, loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
