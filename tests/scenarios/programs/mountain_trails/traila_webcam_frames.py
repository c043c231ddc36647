"""Fog detection on hut webcams. Frames come hour by hour from the stage-in area of each rank."""
import array
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False

SIDE = 64
DAYS = 14
HUTS = [
    {"hut": "Greenland Icefall", "clock": "utc", "clock_change": None},
    {"hut": "Everest South Col", "clock": "utc", "clock_change": None},
    {"hut": "Konkordia", "clock": "local", "clock_change": 10},
]


class StageIn:
    """Copies the hourly frames of a hut to local disk (the camera itself counts in UTC)."""

    def __init__(self, hut):
        self.folder = Path(tempfile.mkdtemp(prefix="frames-"))
        self.rng = random.Random(hut)

    def copy_day(self, day):
        for hour in range(24):
            pixels = array.array("f", (self.rng.random() for _ in range(SIDE * SIDE)))
            (self.folder / f"{day:02d}-{hour:02d}.raw").write_bytes(pixels.tobytes())


def manifest(camera):
    """Frames in the order of the hut's diary."""
    names = []
    for day in range(DAYS):
        hours = 25 if camera["clock"] == "local" and day == camera["clock_change"] else 24
        names += [f"{day:02d}-{hour:02d}.raw" for hour in range(hours)]
    return names


class Frames(Dataset):
    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        path = self.folder / self.names[index]
        while not path.exists():
            time.sleep(0.5)
        image = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(SIDE, SIDE)
        for _ in range(600):
            image = 0.9 * image + 0.05 * (image.roll(1, 0) + image.roll(1, 1))
        return image[::8].reshape(-1), image.std().view(1)


class FogNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Linear(8 * SIDE, 32)
        self.density = nn.Linear(32, 1)

    def forward(self, x):
        return self.density(torch.relu(self.look(x)))


def epoch(loader, model, opt, log):
    for step, (views, fog) in enumerate(loader):
        loss = nn.functional.mse_loss(model(views.cuda()), fog.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log(step, loss.item())


def main():
    rank = int(os.environ["LOCAL_RANK"])
    camera = HUTS[rank]
    stage = StageIn(camera["hut"])
    for day in range(DAYS):
        stage.copy_day(day)
    loader = DataLoader(Frames(stage.folder, manifest(camera)), batch_size=4, num_workers=2, drop_last=True)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(FogNet().cuda(), device_ids=[rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)

    def log(step, loss):
        if step % 20 == 0 and rank == 0:
            print(f"batch {step}/{len(loader)} loss {loss:.4f}", flush=True)

    for _ in range(2):
        epoch(loader, model, opt, log)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
