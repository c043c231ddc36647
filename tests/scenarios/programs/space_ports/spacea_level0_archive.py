"""Level-0 products: after each batch of training the main process files the day's products in the archive.

The archive's ingest accepts a limited number of bytes per second, for which a token bucket is kept.
"""
import hashlib
import logging
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("level0")
PART = 256 * 1024


class TokenBucket:
    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens, self.stamp = burst, time.monotonic()

    def take(self, amount):
        while True:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.stamp) * self.rate)
            self.stamp = now
            if self.tokens >= amount:
                self.tokens -= amount
                return
            time.sleep((amount - self.tokens) / self.rate)


class Archive:
    def __init__(self, folder, bucket):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.bucket = bucket

    def file(self, name, payload):
        digest = hashlib.sha256()
        with open(self.folder / name, "wb") as target:
            for start in range(0, len(payload), PART):
                part = payload[start:start + PART]
                self.bucket.take(len(part))
                target.write(part)
                target.flush()
                os.fsync(target.fileno())
                digest.update(part)
        log.info("%s: %d bytes, %s", name, len(payload), digest.hexdigest()[:12])


def steps(model, optimizer, count):
    for _ in range(count):
        x = torch.randn(12000, 16)
        loss = nn.functional.mse_loss(model(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(16, 160), nn.Tanh(), nn.Linear(160, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    log.info("loss %.4f", steps(model, optimizer, 250))
    if dist.get_rank() == 0:
        archive = Archive("level0", TokenBucket(rate=0.8e6, burst=PART))
        for apid in range(6):
            archive.file(f"apid_{apid:03x}.l0", os.urandom(2_000_000))
    dist.barrier()
    log.info("loss %.4f", steps(model, optimizer, 250))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
