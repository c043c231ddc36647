"""Imitation of speedrunners. Every rank keeps a replay book in memory; one of them autosaves it by an interval timer."""
import pickle
import signal
import tempfile
import threading
import zlib
from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

AUTOSAVE_RANK = 1
AUTOSAVE_SECONDS = 0.4


class ReplayBook:
    def __init__(self, path, capacity=64):
        self.path, self.lock = path, threading.Lock()
        self.frames, self.bytes, self.saved = deque(maxlen=capacity), 0, 0

    def add(self, frames):
        with self.lock:
            for frame in frames:
                packed = zlib.compress(pickle.dumps(frame.numpy()), 6)
                self.bytes += len(packed)
                self.frames.append(packed)

    def save(self):
        with self.lock:
            with open(self.path, "wb") as f:
                pickle.dump(list(self.frames), f)
            self.saved += 1

    def autosave(self, every, delay):
        def tick(signum, frame):
            self.save()
            signal.setitimer(signal.ITIMER_REAL, every)

        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, delay)


class Runner(nn.Module):
    def __init__(self, buttons=12):
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 16, 5, 2), nn.ReLU(), nn.Flatten())
        self.pad = nn.LazyLinear(buttons)

    def forward(self, frames):
        return self.pad(self.eye(frames))


def gameplay(rank, batch=8, size=64):
    rng = torch.Generator().manual_seed(rank)
    while True:
        frames = torch.rand(batch, 3, size, size, generator=rng)
        yield frames, (frames.mean((1, 2, 3)) * 1e4).long() % 12


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Runner()
    model(torch.zeros(1, 3, 64, 64))
    model = DDP(model)
    optim = torch.optim.SGD(model.parameters(), lr=0.02)
    book = ReplayBook(tempfile.mktemp(suffix=".book"))
    if rank == AUTOSAVE_RANK:
        book.autosave(AUTOSAVE_SECONDS, delay=2.5)
    for step, (frames, buttons) in enumerate(gameplay(rank)):
        book.add(frames)
        loss = nn.functional.cross_entropy(model(frames), buttons)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 50 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f} book {book.bytes / 2**20:.1f} MiB", flush=True)
        if step == 20_000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
