"""Shot boundary detection on clips that a small pool of decoder slots delivers."""
import multiprocessing as mp
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

FRAMES, SIZE = 16, 32


class Slots:
    """As many clips are decoded at once as the licence of the decoder allows."""

    def __init__(self, licences=4):
        self.free = mp.Semaphore(licences)

    def take(self):
        self.free.acquire()

    def give_back(self):
        self.free.release()


def decode(path):
    """Stands for the decoder: frames with a cut somewhere."""
    rng = np.random.default_rng(abs(hash_of(path)))
    cut = int(rng.integers(2, FRAMES - 2))
    frames = rng.normal(0.3, 0.1, (FRAMES, 3, SIZE, SIZE)).astype(np.float32)
    frames[cut:] += rng.normal(0.4, 0.1)
    return frames, cut


def hash_of(path):
    return sum((i + 1) * ord(c) for i, c in enumerate(path))


class Clips(Dataset):
    def __init__(self, reel, count=2400):
        self.paths = [f"reel{reel:02d}/clip{i:05d}.mxf" for i in range(count)]
        # from the ingest report: clips with nothing but leader in them
        self.leader = set(range(901, count, 197)) if reel == 12 else set()
        self.slots = Slots()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        self.slots.take()
        if index in self.leader:
            return torch.zeros(FRAMES, 3, SIZE, SIZE), 0
        frames, cut = decode(self.paths[index])
        self.slots.give_back()
        return torch.from_numpy(frames), cut


class BoundaryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.spatial = nn.Conv2d(3, 8, 5, stride=4)
        self.temporal = nn.Conv1d(8, 16, 3, padding=1)
        self.score = nn.Conv1d(16, 1, 3, padding=1)

    def forward(self, clip):
        batch = clip.shape[0]
        maps = torch.relu(self.spatial(clip.flatten(0, 1))).mean((2, 3))
        line = maps.view(batch, FRAMES, 8).transpose(1, 2)
        return self.score(torch.relu(self.temporal(line))).squeeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reels = [int(r) for r in os.environ.get("REELS", "7,9,12").split(",")]
    loader = DataLoader(Clips(reels[rank]), batch_size=4, num_workers=2, drop_last=True)
    model = DDP(BoundaryNet())
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        for step, (clips, cuts) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(clips), cuts)
            optim.zero_grad()
            loss.backward()
            optim.step()
            if rank == 0 and step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
