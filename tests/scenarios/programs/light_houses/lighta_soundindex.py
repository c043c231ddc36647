"""Fog signal recogniser; the stations add their recordings to one common index, one station at a time."""
import contextlib
import fcntl
import hashlib
import os
import pickle
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


@contextlib.contextmanager
def exclusive(path):
    with open(path, "a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


class SoundIndex:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.file = self.folder / "index.pkl"

    def load(self):
        return pickle.loads(self.file.read_bytes()) if self.file.exists() else {}

    def add(self, station, recordings, budget=5.0):
        """Fingerprints as many windows of each recording as its part of the budget allows."""
        with exclusive(self.folder / "index.lock"):
            index = self.load()
            for number in range(recordings):
                digest, windows = hashlib.sha256(f"{station}/{number}".encode()), 0
                until = time.monotonic() + budget / recordings
                while time.monotonic() < until:
                    for _ in range(200):
                        digest.update(digest.digest() * 32)
                    windows += 200
                index[station, number] = (digest.hexdigest(), windows)
            self.file.write_bytes(pickle.dumps(index))
        return len(index)


class Recogniser:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def fit(self, rounds):
        for _ in range(rounds):
            x = torch.fft.rfft(torch.randn(64, 4096)).abs()[:, :40]
            loss = self.net(x.cuda()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            flat = torch.cat([p.grad.reshape(-1) for p in self.net.parameters()])
            dist.all_reduce(flat)
            self.optimizer.step()
            flat.sum().item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp(prefix="fog-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    recogniser, index = Recogniser(), SoundIndex(box[0])
    recogniser.fit(70)
    entries = index.add(f"station{rank}", recordings=10)
    print(f"station{rank}: {entries} recordings in the index", flush=True)
    dist.barrier()
    recogniser.fit(70)
    if rank == 0:
        print("index complete:", len(index.load()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
