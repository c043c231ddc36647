"""Fog detector for piste cameras that keeps the last frames of its own camera in a bounded cache."""
import logging
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("fog")
SENSORS = {0: ("Bergstation", 320), 1: ("Mitte", 96), 2: ("Tal", 128)}


class Frame:
    def __init__(self, cache: "FrameCache", number: int, pixels: torch.Tensor):
        self.cache, self.number, self.pixels = cache, number, pixels

    @property
    def size(self) -> int:
        return self.pixels.numel() * self.pixels.element_size()

    def __del__(self):
        self.cache.note_freed(self.size)


class FrameCache:
    """Keeps frames up to a number of bytes, oldest out first, and counts what has really been freed."""

    def __init__(self, limit: int):
        self.limit, self.used, self.freed = limit, 0, 0
        self.frames: OrderedDict[int, Frame] = OrderedDict()
        self.guard = threading.Lock()

    def note_freed(self, size: int) -> None:
        with self.guard:
            self.freed += size

    def put(self, frame: Frame) -> None:
        with self.guard:
            self.frames[frame.number] = frame
            self.used += frame.size
            while self.used > self.limit:
                oldest = next(iter(self.frames))
                self.used -= self.frames[oldest].size
                del self.frames[oldest]

    def sample(self, n: int) -> list[torch.Tensor]:
        with self.guard:
            chosen = list(self.frames.values())[-n:]
            return [frame.pixels for frame in chosen]


class FogTrainer:
    def __init__(self, rank: int):
        self.name, self.edge = SENSORS[rank]
        self.cache = FrameCache(limit=48 << 20)
        self.pool = nn.AdaptiveAvgPool2d(16)
        torch.manual_seed(21)
        self.model = DDP(nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.g = torch.Generator().manual_seed(rank)

    def expose(self, number: int) -> Frame:
        pixels = torch.rand(1, self.edge, self.edge, generator=self.g)
        for _ in range(40):
            pixels = nn.functional.avg_pool2d(pixels, 3, 1, 1)
        return Frame(self.cache, number, pixels)

    def step(self, number: int) -> float:
        self.cache.put(self.expose(number))
        x = torch.stack([self.pool(p).flatten() for p in self.cache.sample(8)])
        target = x.std(dim=1, keepdim=True) * 5
        loss = nn.functional.mse_loss(self.model(x), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, frames: int) -> None:
        for number in range(frames):
            loss = self.step(number)
            if number % 15 == 0:
                log.info("%s frame %d loss %.5f cache %.1f MB", self.name, number, loss, self.cache.used / 2**20)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    FogTrainer(dist.get_rank()).run(frames=3000)
    dist.destroy_process_group()
