"""Visual servoing from recorded camera streams with a prefetching frame cache."""
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

STREAMS = {"front": 600, "wrist": 600, "overhead": 600}


class FrameCache:
    """Decoded frames by (stream, index). Decoding is not re-entrant, hence the lock."""

    def __init__(self, streams):
        self.streams = streams
        self.lock = threading.Lock()
        self.frames = {}

    def decode(self, stream, index, cost=0.0):
        with self.lock:
            key = (stream, index)
            if key not in self.frames:
                g = torch.Generator().manual_seed(index * 7 + len(stream))
                time.sleep(cost)
                self.frames[key] = torch.rand(3, 16, 16, generator=g)
            return self.frames[key]

    def prefetch(self, stream, indices, cost):
        def work():
            for i in indices:
                self.decode(stream, i, cost)
        thread = threading.Thread(target=work, name=f"prefetch-{stream}", daemon=True)
        thread.start()
        return thread


class ServoPairs(Dataset):
    def __init__(self, cache, stream):
        self.cache, self.stream = cache, stream

    def __len__(self):
        return self.cache.streams[self.stream] - 1

    def __getitem__(self, i):
        now, nxt = self.cache.decode(self.stream, i), self.cache.decode(self.stream, i + 1)
        return now, (nxt - now).mean(dim=(1, 2))


class Servo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 12, 3, stride=2)
        self.out = torch.nn.Linear(12 * 49, 3)

    def forward(self, image):
        return self.out(torch.relu(self.conv(image)).flatten(1))


def keyframes(cache, rank, phase):
    """Long exposures of the overhead camera take a while each."""
    if phase > 0 and rank == phase % 3:
        cache.prefetch("overhead", range(phase * 10, phase * 10 + 8), cost=0.6)
        time.sleep(0.1)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    cache = FrameCache(STREAMS)
    model = DDP(Servo())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stream = list(STREAMS)[rank % 3]
    for phase in range(4):
        keyframes(cache, rank, phase)
        loader = DataLoader(ServoPairs(cache, stream), batch_size=12, shuffle=True, num_workers=1, multiprocessing_context="fork")
        for image, motion in loader:
            loss = (model(image) - motion).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
        print(f"phase {phase} rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
