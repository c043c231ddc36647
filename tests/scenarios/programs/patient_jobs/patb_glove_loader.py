"""Grasp classifier on tactile-glove clips, one archive shard per rank, DDP."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CLIPS_PER_WORKER = 144
BATCH = 16
# clips of session 5 of glove C were moved to the old recorder's SD card
ARCHIVED = {2: range(64, 80)}


class GloveClips(IterableDataset):
    def __init__(self, rank):
        self.rank = rank
        self.archived = ARCHIVED.get(rank, range(0))

    def decode(self, worker, k):
        time.sleep(0.85 if k in self.archived else 0.01)
        g = torch.Generator().manual_seed(self.rank * 10007 + worker * 911 + k)
        frames = torch.randn(12, 20, generator=g)
        grip = int(frames.mean() * 40) % 5
        return frames.flatten(), grip

    def __iter__(self):
        info = get_worker_info()
        worker = info.id if info else 0
        for k in range(CLIPS_PER_WORKER):
            yield self.decode(worker, k)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    net = DDP(nn.Sequential(nn.Linear(240, 64), nn.ReLU(), nn.Linear(64, 5)))
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(GloveClips(rank), batch_size=BATCH, num_workers=2)
    seen = 0
    for step, (clips, grips) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(clips), grips)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += len(grips)
        time.sleep(0.25)
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    total = torch.tensor([seen])
    dist.all_reduce(total)
    if rank == 0:
        print("clips seen", int(total), "pid", os.getpid(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
