"""Video pretraining with a prefetcher of our own: a thread decodes clips ahead into a small queue."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ClipReader:
    """Manifest lines of the form `video|start|frames`."""

    def __init__(self, lines):
        self.lines = lines

    def decode(self, line):
        video, start, frames = line.split("|")
        generator = torch.Generator().manual_seed(int(video[3:]) * 100 + int(start))
        time.sleep(0.05)
        return torch.randn(int(frames), 48, generator=generator).mean(0)


class Prefetcher:
    def __init__(self, reader, batch, depth=4):
        self.reader, self.batch, self.ahead = reader, batch, queue.Queue(maxsize=depth)
        self.thread = threading.Thread(target=self._fill, daemon=True, name="prefetch")
        self.thread.start()

    def _fill(self):
        clips = []
        for line in self.reader.lines:
            clips.append(self.reader.decode(line))
            if len(clips) == self.batch:
                self.ahead.put(torch.stack(clips))
                clips = []
        self.ahead.put(None)

    def __iter__(self):
        while (batch := self.ahead.get()) is not None:
            yield batch


def manifest(rank, n=480):
    lines = [f"vid{rank}{i:04d}|{i % 7}|{8 + i % 5}" for i in range(n)]
    if rank == 1:
        lines[131] = "vid10131|3|"  # as the scraper left it
    return lines


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 48)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rank = dist.get_rank()
    for step, clips in enumerate(Prefetcher(ClipReader(manifest(rank)), batch=8)):
        loss = (model(clips) - clips).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
