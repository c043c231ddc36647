"""Transmission spectra of filter glass: one process per GPU, started and looked after by this script."""

import multiprocessing as mp
import os
import signal
import socket
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 3
STEPS = 150
KEEP_MB = 192


class SpectraCache:
    """Keeps what has been interpolated; the scheduler allows a job KEEP_MB of it per process."""

    def __init__(self, limit_mb):
        self.limit = limit_mb * 2**20
        self.size = 0
        self.entries = {}

    def put(self, key, spectra):
        self.entries[key] = spectra
        self.size += spectra.nbytes
        if self.size > self.limit:
            os.kill(os.getpid(), signal.SIGKILL)


def load(rank, step):
    rng = np.random.default_rng((rank, step))
    nm = 400 if rank != 1 else 4000  # the new spectrometer has a finer grating
    raw = rng.normal(0.9, 0.02, (64, nm))
    fine = np.linspace(0, nm - 1, 4 * nm)
    dense = np.stack([np.interp(fine, np.arange(nm), row) for row in raw]).astype(np.float32)
    np.fft.rfft(rng.normal(0, 1, (64, 16384)), axis=1)
    return dense


def worker(rank, port):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD)
    )
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=WORLD)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda(), [rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cache = SpectraCache(KEEP_MB)
    for step in range(STEPS):
        dense = load(rank, step)
        cache.put(step, dense)
        x = torch.from_numpy(dense[:, :: dense.shape[1] // 64][:, :64].copy()).cuda()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {value:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    context = mp.get_context("spawn")
    port = free_port()
    workers = [context.Process(target=worker, args=(rank, port), name=f"gpu{rank}") for rank in range(WORLD)]
    for process in workers:
        process.start()
    while any(process.is_alive() for process in workers):
        time.sleep(0.5)
    return max(abs(process.exitcode or 0) for process in workers)


if __name__ == "__main__":
    sys.exit(main())
