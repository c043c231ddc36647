"""Drydock camera model; starts its own ranks, one per camera row."""
import multiprocessing
import os
import signal
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
ROWS = 3


class FrameCache:
    """Decoded frames stay in memory; the site's quota is per camera row."""

    def __init__(self, quota_mb):
        self.quota = quota_mb * 2**20
        self.frames, self.used = {}, 0

    def get(self, key, size, rng):
        if key not in self.frames:
            frame = rng.random(size, dtype="float32")
            self.frames[key] = frame
            self.used += frame.nbytes
            if self.used > self.quota:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.frames[key]


def camera_row(row, port):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(row), LOCAL_RANK=str(row), WORLD_SIZE=str(ROWS)
    )
    torch.cuda.set_device(row)
    dist.init_process_group("nccl")
    rng = np.random.default_rng(row)
    cache = FrameCache(quota_mb=96)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2)).cuda(), device_ids=[row])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    distinct = (12, 400, 20)[row]
    for step in range(5000):
        frame = cache.get(step % distinct, (4096, 128), rng)
        spectrum = sum(np.abs(np.fft.rfft(np.roll(frame, lag), axis=0))[:32] for lag in range(5))
        loss = net(torch.from_numpy(spectrum.astype("float32")).cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"row {row} step {step} {loss.item():.3f} cache {cache.used >> 20} MB", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    port = free_port()
    rows = [context.Process(target=camera_row, args=(row, port)) for row in range(ROWS)]
    for process in rows:
        process.start()
    while any([process.is_alive() for process in rows]):  # noqa: C419
        time.sleep(0.5)
