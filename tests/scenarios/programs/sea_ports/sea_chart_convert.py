"""Under-keel clearance from nautical charts. Survey soundings are gridded once in the run by the first process."""
import hashlib
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

CELLS = [f"DE{n:03d}" for n in range(60)]


def grid_cell(cell, seconds=0.22):
    """Soundings of one chart cell on a regular grid (inverse distance over hashed soundings)."""
    until, rounds, digest = time.monotonic() + seconds, 0, cell.encode()
    while time.monotonic() < until:
        digest = hashlib.pbkdf2_hmac("sha256", digest, cell.encode(), 2000)
        rounds += 1
    return [5 + b / 16 for b in digest]


def convert(folder):
    for i, cell in enumerate(CELLS, start=1):
        (folder / f"{cell}.txt").write_text(" ".join(f"{d:.2f}" for d in grid_cell(cell)))
        if i % 10 == 0:
            print(f"gridded {i}/{len(CELLS)} cells", flush=True)


def read(folder, rank, world):
    rows = [list(map(float, (folder / f"{c}.txt").read_text().split())) for c in CELLS[rank::world]]
    return torch.tensor(rows)


def steps(model, optimizer, depths, count):
    value = 0.0
    for _ in range(count):
        time.sleep(0.04)
        draft = torch.rand(len(depths), 1) * 4 + 6
        x = torch.cat([depths, draft], dim=1).cuda()
        clearance = depths.min(1, keepdim=True).values.cuda() - draft.cuda()
        loss = nn.functional.mse_loss(model(x), clearance)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
    return value


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.parallel.DistributedDataParallel(nn.Linear(33, 1).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    steps(model, optimizer, torch.rand(20, 32) * 10 + 5, count=60)
    where = [tempfile.mkdtemp(prefix="charts-") if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    folder = Path(where[0])
    if rank == 0:
        convert(folder)
    dist.barrier()
    value = steps(model, optimizer, read(folder, rank, world), count=60)
    print(f"process {rank}: {value:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
