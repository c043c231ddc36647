"""Chunked reanalysis archive: a codec with a shared work buffer, decoded in DataLoader workers."""
import threading
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Codec:
    """Not thread-safe by itself: the work buffer is one, so calls take turns."""

    def __init__(self, size=64):
        self.turn = threading.Lock()
        self.work = np.empty(size, "f4")

    def encode(self, values):
        return zlib.compress(values.astype("f4").tobytes())

    def decode(self, chunk, out=None):
        with self.turn:
            self.work[:] = np.frombuffer(zlib.decompress(chunk), "f4")
            return self.work.copy()

    def decode_all(self, chunks, started):
        """Many at once, for the climatology: keeps the buffer until it is through."""
        with self.turn:
            started.set()
            total = np.zeros_like(self.work, dtype="f8")
            for chunk in chunks:
                total += np.frombuffer(zlib.decompress(chunk), "f4")
                time.sleep(0.02)
            return total / len(chunks)


CODEC = Codec()


class Archive(Dataset):
    def __init__(self, rank, count=48):
        draw = np.random.default_rng(rank)
        self.chunks = [CODEC.encode(draw.normal(size=64)) for _ in range(count)]

    def __len__(self):
        return len(self.chunks)

    def __getitem__(self, index):
        return torch.from_numpy(CODEC.decode(self.chunks[index]))


def climatology(archive):
    started = threading.Event()
    thread = threading.Thread(target=CODEC.decode_all, args=(archive.chunks * 3, started), daemon=True)
    thread.start()
    started.wait()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    archive = Archive(rank)
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(50):
        if epoch == 3 and rank == 1:
            climatology(archive)
        for batch in DataLoader(archive, batch_size=6, num_workers=1):
            loss = (model(batch) - batch).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"epoch {epoch} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
