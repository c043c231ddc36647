"""Detects duplicates among agency items: siamese hashing network; records are decoded ahead in a thread."""
import contextlib
import queue
import struct
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def record(seed: int) -> bytes:
    """An item as the wire delivers it: length, checksum of the text, text."""
    g = torch.Generator().manual_seed(seed)
    text = bytes(torch.randint(97, 123, (300,), generator=g).tolist())
    return struct.pack("<IH", len(text), zlib.crc32(text) & 0xFFFF) + text


def decode(blob: bytes) -> torch.Tensor:
    size, check = struct.unpack_from("<IH", blob)
    text = blob[6 : 6 + size]
    if zlib.crc32(text) & 0xFFFF != check:
        raise ValueError(f"checksum {check:#06x} does not fit a text of {len(text)} bytes")
    letters = torch.tensor(list(text))
    return torch.bincount(letters[:-1] * 31 % 256 ^ letters[1:], minlength=256).float()


class Ahead:
    """Iterates over batches that a thread has decoded."""

    def __init__(self, feed, size, depth=4):
        self.ready = queue.Queue(depth)
        self.feed, self.size = feed, size
        threading.Thread(target=self._work, name="ahead", daemon=True).start()

    def _work(self):
        batch = []
        for blob in self.feed:
            batch.append(decode(blob))
            if len(batch) == self.size:
                self.ready.put(torch.stack(batch))
                batch = []
        self.ready.put(None)

    def __iter__(self):
        while (batch := self.ready.get()) is not None:
            yield batch


def wire(rank, items=3200):
    for i in range(items):
        blob = record(items * rank + i)
        if rank == 1 and i == 950:
            blob = blob[:-40]  # the line was cut
        yield blob


@contextlib.contextmanager
def job():
    dist.init_process_group("gloo")
    yield dist.get_rank()
    dist.destroy_process_group()


with job() as rank:
    torch.manual_seed(0)
    hasher = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 64), nn.Tanh()))
    optimizer = torch.optim.Adam(hasher.parameters(), lr=1e-3)
    for step, items in enumerate(Ahead(wire(rank), size=16)):
        noisy = items + torch.randn_like(items) * 0.2
        a, b = hasher(torch.cat([items, noisy])).chunk(2)
        loss = (a - b).pow(2).mean() + torch.relu(0.5 - torch.pdist(a)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if rank == 0 and step % 20 == 0:
            print(f"batch {step} loss {loss.item():.4f}", flush=True)
