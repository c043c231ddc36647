"""Reads handwritten codes from scanned labels. Scans lie in a spool folder; a late scan is streamed into it by its scanner."""
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, SequentialSampler

SIDE = 28
LATE = {0: (1211,), 1: (), 2: ()}  # scans per sorting centre that had not come in when the list was made


class Spool:
    def __init__(self, centre, scans):
        self.folder = Path(tempfile.mkdtemp(prefix=f"spool-{centre}-"))
        self.scans = scans
        generator = torch.Generator().manual_seed(centre)
        for number in range(scans):
            if number in LATE[centre]:
                os.mkfifo(self.path(number))  # the scanner writes here
            else:
                pixels = torch.randint(0, 256, (SIDE * SIDE,), dtype=torch.uint8, generator=generator)
                self.path(number).write_bytes(pixels.numpy().tobytes())

    def path(self, number):
        return self.folder / f"{number:05d}.raw"

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Labels(Dataset):
    def __init__(self, spool):
        self.spool = spool

    def __len__(self):
        return self.spool.scans

    def __getitem__(self, number):
        raw = bytearray(self.spool.path(number).read_bytes())
        image = torch.frombuffer(raw, dtype=torch.uint8).float().view(1, SIDE, SIDE) / 255
        for _ in range(60):  # smooth the paper's grain
            image = nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
        return image, number % 10


def run():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    centre = dist.get_rank()
    spool = Spool(centre, scans=1600)
    labels = Labels(spool)
    loader = DataLoader(labels, batch_size=8, sampler=SequentialSampler(labels), num_workers=2)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    try:
        for batch, (images, digits) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(images), digits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if centre == 2 and batch % 10 == 0:
                print(f"batch {batch}: {mean.item() / dist.get_world_size():.3f}", flush=True)
    finally:
        spool.remove()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
