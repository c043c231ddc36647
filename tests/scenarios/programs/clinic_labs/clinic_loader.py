"""Echocardiography clips from an acquisition folder, read by DataLoader workers."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE = 6, 20


def acquire(folder, rank, clips=260):
    """What the ultrasound machines left: files, and the live channel of the one that is still on."""
    folder.mkdir(parents=True)
    for number in range(clips):
        path = folder / f"clip_{number:04d}.raw"
        if (rank, number) == (1, 171):
            os.mkfifo(path)
        else:
            path.write_bytes(bytes((number * 7 + i) % 251 for i in range(FRAMES * SIDE * SIDE)))


class Clips(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.raw"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            pixels = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        clip = pixels.float().view(FRAMES, SIDE, SIDE) / 255
        return clip, clip.mean().unsqueeze(0)


class EjectionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(FRAMES, 48, 3), nn.ReLU(), nn.Conv2d(48, 24, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.fraction = nn.Linear(96, 1)

    def forward(self, clip):
        return self.fraction(self.features(clip).flatten(1))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix="echo-")) / f"site{rank}"
    acquire(folder, rank)
    dataset = Clips(folder)
    loader = DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="fork")
    torch.manual_seed(0)
    model = DistributedDataParallel(EjectionNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for step, (clip, fraction) in enumerate(loader):
            loss = (model(clip) - fraction).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {float(loss):.4f} after {step + 1} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
