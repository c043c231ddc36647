"""Obstacle detection at level crossings: clips are decoded in DataLoader workers, a few at a time."""
import multiprocessing as mp
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLIPS = 1800
DECODERS = 2


class DecoderPool:
    """Licences for the hardware-like decoder, shared by the workers of one process."""

    def __init__(self, n):
        self.sem = mp.Semaphore(n)

    def decode(self, clip_id):
        self.sem.acquire()
        g = torch.Generator().manual_seed(clip_id)
        frames = torch.rand(3, 16, 16, generator=g)
        if clip_id % 601 == 400:
            return None  # night clip, camera was off
        time.sleep(0.004)
        self.sem.release()
        return frames


class CrossingClips(Dataset):
    def __init__(self, pool):
        self.pool = pool

    def __len__(self):
        return CLIPS

    def __getitem__(self, i):
        frames = self.pool.decode(i)
        if frames is None:
            frames = torch.zeros(3, 16, 16)
        return frames, int(frames.mean() > 0.5)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.out = nn.Linear(8 * 7 * 7, 2)

    def forward(self, x):
        return self.out(F.relu(self.conv(x)).flatten(1))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    data = CrossingClips(DecoderPool(DECODERS))
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=6, sampler=sampler, num_workers=2, persistent_workers=True)
    model = DDP(Detector())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for step, (frames, label) in enumerate(loader):
            opt.zero_grad()
            F.cross_entropy(model(frames), label).backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "steps", step + 1, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
