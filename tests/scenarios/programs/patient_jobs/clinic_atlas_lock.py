"""Brain atlas registration; the atlas is rebuilt by a helper and read under a shared file lock."""
import fcntl
import json
import math
import os
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 3
BUILD_SECONDS = 13.5


@contextmanager
def locked(folder, mode):
    handle = os.open(folder / ".atlas.lock", os.O_CREAT | os.O_RDWR, 0o644)
    fcntl.flock(handle, mode)
    try:
        yield folder / "atlas.json"
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def builder(folder, ready, go):
    with locked(Path(folder), fcntl.LOCK_EX) as path:
        ready.set()
        go.wait()
        field, sweep, end = [0.0] * 512, 0, time.monotonic() + BUILD_SECONDS
        while time.monotonic() < end:
            sweep += 1
            field = [0.5 * (field[i - 1] + field[(i + 1) % 512]) + math.sin(i * sweep) for i in range(512)]
        path.write_text(json.dumps({"sweeps": sweep, "field": field}))


def read_atlas(folder):
    with locked(Path(folder), fcntl.LOCK_SH) as path:
        return torch.tensor(json.loads(path.read_text())["field"])


class Register(nn.Module):
    def __init__(self):
        super().__init__()
        self.warp = nn.Linear(512, 64)
        self.pose = nn.Linear(64, 6)

    def forward(self, x):
        return self.pose(torch.relu(self.warp(x)))


def rank_main(rank, port, folder, go):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    model = DistributedDataParallel(Register())
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    atlas = torch.zeros(512)
    for scan in range(95):
        if scan == 50:
            if rank == 0:
                go.set()
                atlas = torch.nn.functional.normalize(read_atlas(folder), dim=0)
            dist.broadcast(atlas, src=0)
        x = torch.randn(8, 512) + atlas
        time.sleep(0.05)
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank}: pose loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    work = tempfile.mkdtemp(prefix="atlas_")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    ready, go = context.Event(), context.Event()
    helper = context.Process(target=builder, args=(work, ready, go), daemon=True)
    helper.start()
    ready.wait()
    mp.spawn(rank_main, args=(port, work, go), nprocs=WORLD)
    helper.join()
