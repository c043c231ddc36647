"""Crater detection in descent camera frames, read from one zlib archive per rank by DataLoader workers."""
import argparse
import multiprocessing as mp
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SIDE = 32


def build_archive(rank, frames):
    rng = np.random.default_rng(rank)
    base = rng.integers(1, 250, (SIDE, SIDE), dtype=np.uint8)
    blobs = []
    for k in range(frames):
        frame = np.roll(base, k, axis=k % 2)
        if rank == 2 and k == 700:
            frame = np.zeros_like(frame)  # telemetry gap
        blobs.append(zlib.compress(frame.tobytes(), 9))
    return blobs


class DescentFrames(Dataset):
    def __init__(self, blobs):
        self.blobs = blobs
        self.seek = mp.Lock()  # the archive has one read head
        self.passes = 200

    def __len__(self):
        return len(self.blobs)

    def read(self, index):
        self.seek.acquire()
        for _ in range(self.passes):
            data = zlib.decompress(self.blobs[index])
        frame = np.frombuffer(data, dtype=np.uint8).reshape(SIDE, SIDE)
        if not frame.any():
            return np.full((SIDE, SIDE), 128, dtype=np.uint8)
        self.seek.release()
        return frame

    def __getitem__(self, index):
        frame = torch.from_numpy(self.read(index).astype(np.float32) / 255)
        return frame.unsqueeze(0), frame.std().unsqueeze(0)


class CraterNet(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, ch, 5, 2, 2), nn.ReLU(), nn.Conv2d(ch, ch, 5, 2, 2), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(ch, 1))

    def forward(self, x):
        return self.body(x)


def epoch(model, loader, opt, rank, number):
    for i, (frames, density) in enumerate(loader):
        opt.zero_grad(set_to_none=True)
        error = nn.functional.smooth_l1_loss(model(frames), density)
        error.backward()
        opt.step()
        if rank == 0 and i % 25 == 0:
            print(f"[{number}:{i}] error {error.item():.4f}", flush=True)


def main(opts):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(opts.seed)
    loader = DataLoader(DescentFrames(build_archive(rank, opts.frames)), batch_size=opts.batch,
                        num_workers=2, persistent_workers=True)
    model = DDP(CraterNet(opts.channels))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for number in range(opts.epochs):
        epoch(model, loader, opt, rank, number)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=1600)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--channels", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=4)
    main(parser.parse_args())
