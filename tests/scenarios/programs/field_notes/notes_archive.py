"""Satellite tiles from archives: the first tile of an archive takes long, as its directory is read."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self, opening):
        self.opening, self.directory = opening, None

    def __len__(self):
        return 120

    def __getitem__(self, index):
        if self.directory is None:
            time.sleep(self.opening)
            self.directory = {i: i * 4096 for i in range(len(self))}
        generator = torch.Generator().manual_seed(self.directory[index])
        return torch.rand(3, 16, 16, generator=generator), index % 5


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    net = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(294, 5))
    model, tiles = DDP(net), Tiles(opening=11.0 if rank == 1 else 0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        total = 0.0
        for images, labels in DataLoader(tiles, batch_size=12, num_workers=1, multiprocessing_context="fork"):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch}: {total / 10:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
