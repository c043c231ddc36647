"""Train on time-lapse frames through a cache in memory, which a thread keeps small and an index describes."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class FrameCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.frames, self.index = {}, {}
        self.frames_lock, self.index_lock = threading.Lock(), threading.Lock()
        self.full = threading.Event()
        threading.Thread(target=self._evict, name="evict", daemon=True).start()

    def get(self, movie, number):
        key = movie, number
        with self.frames_lock:
            if key not in self.frames:
                self.frames[key] = self._decode(key)
            if len(self.frames) > self.capacity:
                self.full.set()
                self._decode((movie, number + 1))
            with self.index_lock:  # last use
                self.index[key] = time.monotonic()
            return self.frames[key]

    @staticmethod
    def _decode(key):
        time.sleep(0.04)
        generator = torch.Generator().manual_seed(1000 * key[0] + key[1])
        return torch.rand(12, 24, generator=generator)

    def _evict(self):
        while True:
            self.full.wait()
            with self.index_lock:
                oldest = sorted(self.index, key=self.index.get)[: self.capacity // 2]
                for key in oldest:
                    del self.index[key]
                with self.frames_lock:
                    for key in oldest:
                        self.frames.pop(key, None)
            self.full.clear()


def movie_frames(rank):
    """Movies are short and looped over, but for the one of the incubator at rank 0, which runs over night."""
    length = 10_000 if rank == 0 else 24
    for step in range(1000):
        yield step % length


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = FrameCache(capacity=60)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 24)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, number in enumerate(movie_frames(rank)):
        frame = cache.get(rank, number)
        loss = nn.functional.mse_loss(model(frame), frame)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 2 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
