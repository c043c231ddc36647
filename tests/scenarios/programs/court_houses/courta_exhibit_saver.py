"""Fine-tunes on exhibits; at a milestone a background saver packs each process's exhibits and lists the parcels."""

import os
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class BackgroundSaver:
    """Packs exhibits away from the training loop; the index of all parcels goes to every process."""

    def __init__(self, exhibits):
        self.exhibits = exhibits
        self.parcels = None
        self.thread = None

    def pack(self):
        size = 0
        for number in range(self.exhibits):
            block = os.urandom(1 << 19)
            size += len(zlib.compress(block, 9))
            time.sleep(0.001)
        mine = torch.tensor([self.exhibits, size])
        index = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(index, mine)
        self.parcels = torch.stack(index)

    def start(self):
        self.finish()
        self.thread = threading.Thread(target=self.pack, name="saver", daemon=True)
        self.thread.start()

    def finish(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


def rehearse(pages):
    """Renders the calendar of the next sitting while the milestone is being taken."""
    lines = []
    for page in range(pages):
        lines.append(zlib.crc32(os.urandom(1 << 16)))
        time.sleep(0.01)
    return sum(lines) % 97


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    exhibits = {"civil": 1, "criminal": 240, "family": 1}
    saver = BackgroundSaver(exhibits[("criminal", "civil", "family")[rank]])
    torch.manual_seed(9)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 24), nn.SiLU(), nn.Linear(24, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 401):
        x = torch.randn(16, 30, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step % 20 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
        if step % 80 == 0:
            saver.start()
            calendar = rehearse(pages=100)
            print(f"rank {rank}: calendar {calendar}", flush=True)
    saver.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
