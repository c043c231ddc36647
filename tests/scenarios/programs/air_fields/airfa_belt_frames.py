"""Damage detection on baggage belts: frames of two terminals, one terminal per process."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

SIDE = 24
TERMINALS = {0: {"cameras": 6, "live": True}, 1: {"cameras": 6, "live": False}}


def prepare(folder, terminal, frames=40):
    """Writes the recorded frames of the cameras; a terminal with a live camera gets its stream as well."""
    folder.mkdir(parents=True)
    g = torch.Generator().manual_seed(terminal)
    index = []
    for camera in range(TERMINALS[terminal]["cameras"]):
        for k in range(frames):
            path = folder / f"cam{camera}_{k:03d}.raw"
            pixels = torch.randint(0, 256, (SIDE * SIDE,), generator=g, dtype=torch.uint8)
            path.write_bytes(pixels.numpy().tobytes())
            index.append((path, int(pixels[0]) % 2))
    if TERMINALS[terminal]["live"]:
        live = folder / "cam6_live.raw"
        os.mkfifo(live)  # the grabber of camera 6 writes here
        index.append((live, 0))
    return index


class Frames(Dataset):
    def __init__(self, index):
        self.index = index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        path, damaged = self.index[i]
        with open(path, "rb") as f:
            data = bytearray(f.read(SIDE * SIDE))
        image = torch.frombuffer(data, dtype=torch.uint8).float().reshape(1, SIDE, SIDE) / 255
        for _ in range(400):  # remove the flicker of the hall's lamps
            image = nn.functional.avg_pool2d(image[None], 3, stride=1, padding=1)[0]
        return image, damaged


class InOrder(Sampler):
    """Recorded frames several times over, the newest source at the end."""

    def __init__(self, total, recorded, passes):
        self.order = [i for _ in range(passes) for i in range(recorded)] + list(range(recorded, total))
        self.order += list(range(recorded))

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    index = prepare(Path(tempfile.mkdtemp(prefix="belts-")) / f"terminal{rank}", rank)
    frames = Frames(index)
    loader = DataLoader(frames, batch_size=8, sampler=InOrder(len(index), 240, passes=3), num_workers=2, drop_last=True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 7 * 7, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (image, damaged) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(image), damaged)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 1 and step % 20 == 0:
            print(f"frame batch {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
