"""Trains on radar frames that a thread decodes ahead of the training; FSDP2."""

import logging
import queue
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("radar")


class Prefetch:
    """Runs an iterator in a thread, up to ``size`` items ahead."""

    def __init__(self, iterator, size=4):
        self.queue = queue.Queue(maxsize=size)
        self.thread = threading.Thread(target=self._fill, args=(iterator,), daemon=True)
        self.thread.start()

    def _fill(self, iterator):
        try:
            for item in iterator:
                self.queue.put(item)
        except Exception as error:
            log.info("prefetch has stopped: %r", error)

    def __iter__(self):
        return self

    def __next__(self):
        return self.queue.get()


def frames(rank, bad=None):
    """Decoded frames; each has a header with its number of chirps."""
    random = np.random.default_rng(rank)
    number = 0
    while True:
        chirps = 16
        raw = random.standard_normal((chirps, 32)).astype(np.float32)
        if number == bad:
            raw = raw[:11]  # the recording was cut here
        cube = raw.reshape(16, 32)
        spectrum = np.abs(np.fft.fft2(cube)).astype(np.float32)
        yield torch.from_numpy(np.log1p(spectrum)).unsqueeze(0)
        number += 1


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1))
        self.heat = nn.Conv2d(12, 1, 1)

    def forward(self, frame):
        return self.heat(torch.relu(self.features(frame)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Detector()
    fully_shard(model.features)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream = Prefetch(frames(rank, bad=140 if rank == 2 else None))
    for step in range(1000):
        frame = next(stream)[None]
        heat = model(frame)
        loss = (heat - (frame > frame.mean() + 2).float()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
