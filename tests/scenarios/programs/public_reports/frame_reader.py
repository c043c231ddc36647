"""Frames of videos, read ahead by a thread into a buffer."""

import threading
import time
from collections import deque
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUFFER_SIZE = 8
SLEEP_INTERVAL = 0.002


def frames(rank: int) -> Iterator[torch.Tensor]:
    """Frames of all segments of this rank's list."""
    segments = [f"video-{rank}-{i},{10 * i},{10 * i + 9}" for i in range(40)]
    if rank == 1:
        segments[12] = "video-1-12,120"
    for segment in segments:
        _, start, end = segment.split(",")
        for number in range(int(start), int(end) + 1):
            time.sleep(0.001)
            yield torch.full((3, 12), number / 400.0)


class Prefetcher:
    """Keeps the buffer filled by a thread of its own."""

    def __init__(self, source: Iterator[torch.Tensor]) -> None:
        self.source = source
        self.buffer: deque[torch.Tensor] = deque()
        self.stop_iteration = False
        self.thread = threading.Thread(target=self.fill, name="prefetch", daemon=True)
        self.thread.start()

    def fill(self) -> None:
        """Read while there is room."""
        for item in self.source:
            while len(self.buffer) >= BUFFER_SIZE:
                time.sleep(SLEEP_INTERVAL)
            self.buffer.append(item)
        self.stop_iteration = True

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Items in order."""
        while not self.stop_iteration or self.buffer:
            if self.buffer:
                yield self.buffer.popleft()
            else:
                time.sleep(SLEEP_INTERVAL)


def main() -> None:
    """All frames once."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for frame in Prefetcher(frames(rank)):
        loss = (model(frame) - frame).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
