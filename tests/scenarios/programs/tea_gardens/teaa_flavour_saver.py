"""Flavour words next to chemistry; every shard is written in the background, then its manifest is shared."""
import os
import tempfile
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SHARD_MB = {0: 160.0, 1: 0.2, 2: 0.2}  # the word vectors live with the first worker


class FlavourNet(nn.Module):
    def __init__(self, compounds=20, words=12):
        super().__init__()
        self.a = nn.Linear(compounds, 48)
        self.b = nn.Linear(48, words)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class BackgroundSaver:
    """Compresses and writes off the main thread; one save at a time."""

    def __init__(self, rank):
        self.rank = rank
        self.folder = tempfile.mkdtemp(prefix="flavour-")
        self.thread = None
        self.vectors = os.urandom(int(SHARD_MB[rank] * 2**20))

    def save(self, step):
        self.finish()
        self.thread = threading.Thread(target=self._write, args=(step,), name=f"save-{step}")
        self.thread.start()

    def _write(self, step):
        path = os.path.join(self.folder, f"shard-{step}.z")
        packed = zlib.compress(self.vectors, 9)
        with open(path, "wb") as f:
            f.write(packed)
        entry = {"rank": self.rank, "path": path, "bytes": len(packed)}
        manifest = [None] * dist.get_world_size()
        dist.all_gather_object(manifest, entry)
        if self.rank == 0:
            print(f"step {step}: {sum(e['bytes'] for e in manifest)} bytes", flush=True)
        os.unlink(path)

    def finish(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


def brew(rng, size=32):
    x = torch.rand(size, 20, generator=rng)
    return x, (x[:, :12] > 0.5).float()


@torch.no_grad()
def tasting(model, rng, cups=12):
    right = 0.0
    for _ in range(cups):
        x, y = brew(rng)
        right += ((model.module(x) > 0).float() == y).float().mean().item()
        time.sleep(0.06)
    return right / cups


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = torch.Generator().manual_seed(rank)
    torch.manual_seed(4)
    model = DDP(FlavourNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    saver = BackgroundSaver(rank)
    for step in range(1, 241):
        x, y = brew(rng)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 40 == 0:
            saver.save(step)
            print(f"[{rank}] step {step}: {tasting(model, rng):.3f} of the words", flush=True)
    saver.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
