"""Rockburst early warning: trains on the ring files that the data loggers of three stopes keep on disk.

Starts one process per stope itself:  python minea_ring_file.py
"""
import os
import pathlib
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

torch.backends.cudnn.enabled = False

SAMPLES, WINDOWS = 65536, 96
STOPES = {"A12": {"keep": 96}, "B07": {"keep": 40}, "C31": {"keep": 96}}  # windows that stay on the logger's disk


class RingFile:
    """A logger's file, mapped; old data goes to the archive and leaves the disk."""

    def __init__(self, folder, stope, keep):
        self.path = str(pathlib.Path(folder) / f"{stope}.ring")
        self.keep = keep
        self.samples = torch.from_file(self.path, shared=True, size=WINDOWS * SAMPLES, dtype=torch.float32)
        self.samples.copy_(torch.randn(WINDOWS * SAMPLES))
        self.archived = 0

    def window(self, i):
        start = (i % WINDOWS) * SAMPLES
        return self.samples[start:start + SAMPLES]

    def roll(self):
        os.truncate(self.path, self.keep * SAMPLES * 4)
        self.archived += 1


def features(window):
    spectrum = torch.fft.rfft(window.reshape(256, 256)).abs()
    for _ in range(1100):
        spectrum = 0.5 * (spectrum + spectrum.roll(1, dims=0))
    return spectrum[:, :128]


def watch(rank, stope, folder, port, steps=300):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(STOPES)),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    ring = RingFile(folder, stope, STOPES[stope]["keep"])
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)).to("cuda")
    model = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.stack([features(ring.window(4 * step + k)) for k in range(4)])
        target = batch.mean(dim=(1, 2)) / 16
        loss = nn.functional.mse_loss(model(batch.to("cuda")).mean(dim=(1, 2)), target.to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{stope} step {step} loss {loss.item():.4f}", flush=True)
        if step % 30 == 29:
            ring.roll()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="rings-") as folder:
        port = free_port()
        watchers = [context.Process(target=watch, args=(rank, stope, folder, port), name=stope)
                    for rank, stope in enumerate(STOPES)]
        for watcher in watchers:
            watcher.start()
        for watcher in watchers:
            watcher.join()


if __name__ == "__main__":
    main()
