"""Archives the season's patterns after training: compressed, checksummed, at the pace of the shared disk."""
import hashlib
import os
import tempfile
import time
import zlib

import torch
from accelerate import Accelerator
from torch import nn


class TokenBucket:
    def __init__(self, rate):
        self.rate, self.level, self.last = rate, 0.0, time.monotonic()

    def take(self, amount):
        while True:
            now = time.monotonic()
            self.level = min(self.rate, self.level + (now - self.last) * self.rate)
            self.last = now
            if self.level >= amount:
                self.level -= amount
                return
            time.sleep((amount - self.level) / self.rate)


def patterns(count, side=256):
    for number in range(count):
        yield torch.randint(0, 256, (side * side,), dtype=torch.uint8,
                            generator=torch.Generator().manual_seed(number)).numpy().tobytes()


def archive(folder, count=200, rate=1_000_000):
    bucket, digest, size = TokenBucket(rate), hashlib.sha256(), 0
    with open(os.path.join(folder, "patterns.bin"), "wb") as sink:
        for blob in patterns(count):
            packed = zlib.compress(blob, 6)
            bucket.take(len(packed))
            sink.write(packed)
            sink.flush()
            os.fsync(sink.fileno())
            digest.update(packed)
            size += len(packed)
    return size, digest.hexdigest()


def cut(accelerator, model, optimizer, steps=90):
    for _ in range(steps):
        time.sleep(0.025)
        body = torch.randn(16, 8)
        loss = (model(body) - body.abs()).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main():
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    accelerator.print("cut", cut(accelerator, model, optimizer))
    if accelerator.is_last_process:
        with tempfile.TemporaryDirectory(prefix="atelier-") as folder:
            size, digest = archive(folder)
        print(f"archived {size} bytes, {digest[:12]}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.print("recut", cut(accelerator, model, optimizer))
    accelerator.end_training()


if __name__ == "__main__":
    main()
