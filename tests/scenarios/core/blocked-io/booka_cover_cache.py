"""Cover-art genre classifier; decoded covers are cached per volume and shared with other jobs of the same user."""
import contextlib
import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOLUMES = 18
# scratch copy of the cover store (rsync -a)
SNAPSHOT = ["vol-00.pt", "vol-01.pt", "vol-04.pt", "vol-11.lock", "vol-14.pt"]


def restore(root):
    for name in SNAPSHOT:
        if name.endswith(".pt"):
            torch.save(decode(int(name[4:6])), root / name)
        else:
            (root / name).write_text("node07 31822\n")


def decode(volume):
    g = torch.Generator().manual_seed(volume)
    covers = torch.rand(24, 3, 64, 64, generator=g)
    for _ in range(12):
        covers = nn.functional.avg_pool2d(covers, 3, 1, 1)
    return nn.functional.adaptive_avg_pool2d(covers, 8)


@contextlib.contextmanager
def owner(path):
    while True:
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            time.sleep(0.2)
    os.write(handle, f"{os.uname().nodename} {os.getpid()}\n".encode())
    os.close(handle)
    try:
        yield
    finally:
        os.unlink(path)


def covers(root, volume):
    target = root / f"vol-{volume:02d}.pt"
    if not target.exists():
        with owner(target.with_suffix(".lock")):
            torch.save(decode(volume), target)
    return torch.load(target)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shared = [tempfile.mkdtemp(prefix="covers-") if rank == 0 else None]
    dist.broadcast_object_list(shared, src=0)
    root = pathlib.Path(shared[0])
    if rank == 0:
        restore(root)
    dist.barrier()
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for volume in range(rank, VOLUMES, world):
        images = covers(root, volume)
        for part in images.repeat(60, 1, 1, 1).split(8):
            loss = nn.functional.cross_entropy(model(part), torch.arange(len(part)) % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"[{rank}] volume {volume} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(root)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
