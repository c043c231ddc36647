"""Whale song density from hydrophone spools; starts its own processes, as the lab's machine has no launcher."""
import mmap
import multiprocessing as mp
import os
import socket
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 3
BLOCK = 1 << 16
SPOOL_BLOCKS = {0: 900, 1: 2400, 2: 900}
KEEP_BLOCKS = 1200


class Spool:
    """Raw samples of one hydrophone, mapped, since a night does not fit into memory."""

    def __init__(self, folder, hydrophone):
        self.path = Path(folder) / f"h{hydrophone}.spool"
        blocks = SPOOL_BLOCKS[hydrophone]
        with open(self.path, "wb") as f:
            f.truncate(blocks * BLOCK)
        self.file = open(self.path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), blocks * BLOCK)
        self.blocks = blocks

    def read(self, index):
        at = (self.blocks - 1 - index % self.blocks) * BLOCK
        raw = np.frombuffer(self.map, dtype=np.int16, count=BLOCK // 2, offset=at)
        return raw.astype(np.float32) + np.random.default_rng(index).standard_normal(BLOCK // 2).astype(np.float32)


class Housekeeping(threading.Thread):
    """Keeps the spool below its share of the disk."""

    def __init__(self, spool, every):
        super().__init__(daemon=True)
        self.spool, self.every, self.done = spool, every, threading.Event()

    def run(self):
        while not self.done.wait(self.every):
            if self.spool.path.stat().st_size > KEEP_BLOCKS * BLOCK:
                os.truncate(self.spool.path, KEEP_BLOCKS * BLOCK)


def density(block):
    frames = block.reshape(-1, 512)
    power = np.abs(np.fft.rfft(frames * np.hanning(512), axis=-1)) ** 2
    for _ in range(40):
        power = 0.5 * (power + np.sort(power, axis=0))
    return torch.from_numpy(np.log1p(power).mean(axis=0)[:256].astype(np.float32))


def survey(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    torch.backends.cudnn.enabled = False
    spool = Spool(folder, rank)
    dist.init_process_group("nccl")
    torch.manual_seed(9)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    Housekeeping(spool, every=5.0).start()
    for step in range(1200):
        batch = torch.stack([density(spool.read(step * 2 + k)) for k in range(2)])
        loss = model(batch.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} density loss {value:.4f}", flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="spools-") as folder:
        team = [context.Process(target=survey, args=(rank, port, folder), name=f"hydrophone{rank}") for rank in range(WORLD)]
        for process in team:
            process.start()
        for process in team:
            process.join()


if __name__ == "__main__":
    main()
