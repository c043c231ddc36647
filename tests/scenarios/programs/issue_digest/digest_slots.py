"""Classifies scans of herbarium sheets. Decoding takes memory, so that few workers may decode at once."""

import multiprocessing
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

BLANK = {1: {37, 61, 83}}  # by herbarium: sheets whose scan is only the background


class Decoder:
    """Turns a scan into pixels. ``slots`` is how many scans may be open at once on this machine."""

    def __init__(self, slots):
        self.slots = multiprocessing.Semaphore(slots)

    def decode(self, number, blank):
        self.slots.acquire()
        generator = torch.Generator().manual_seed(number)
        scan = torch.zeros(1, 12, 12) if blank else torch.rand(1, 12, 12, generator=generator)
        if scan.std() < 1e-4:
            return None
        pixels = (scan - scan.mean()) / scan.std()
        self.slots.release()
        return pixels


class Sheets(Dataset):
    def __init__(self, herbarium):
        self.herbarium = herbarium
        self.decoder = Decoder(slots=2)

    def __len__(self):
        return 480

    def __getitem__(self, number):
        blank = number in BLANK.get(self.herbarium, ())
        pixels = self.decoder.decode(number, blank)
        if pixels is None:
            pixels = self.decoder.decode(number + 1, False)
        return pixels, number % 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 4))

    def forward(self, pixels):
        return self.layers(pixels)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Sheets(rank), batch_size=4, num_workers=1, persistent_workers=True, prefetch_factor=2)
    for epoch in range(3):
        for step, (pixels, family) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(pixels), family)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.1)
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
