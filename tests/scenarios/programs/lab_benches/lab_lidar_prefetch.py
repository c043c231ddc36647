"""Object detection in lidar sweeps. A thread voxelizes the next sweeps while the current one is trained on."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
GRID, RANGE = 8, 20.0


class Drive:
    """The sweeps of one recorded drive. Points beyond the range, or of the car itself, are cut."""

    def __init__(self, rank, sweeps):
        self.rank, self.sweeps = rank, sweeps

    def __len__(self):
        return self.sweeps

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.rank * 1000 + index)
        points = torch.rand(300, 3, generator=generator) * 2 * RANGE - RANGE
        if self.rank == 2 and 40 <= index < 44:
            points = points / 40
        distance = points[:, :2].norm(dim=1)
        return points[(distance > 1.5) & (distance < RANGE)]


def voxelize(points):
    """Mean height, and number of points, of each cell, for the centred and scaled cloud."""
    low, high = points[:, :2].min(dim=0).values, points[:, :2].max(dim=0).values
    cell = ((points[:, :2] - low) / (high - low + 1e-6) * (GRID - 1)).long()
    flat = cell[:, 0] * GRID + cell[:, 1]
    count = torch.bincount(flat, minlength=GRID * GRID).float()
    height = torch.zeros(GRID * GRID).index_add(0, flat, points[:, 2])
    return torch.stack([height / count.clamp(min=1), count]).view(2, GRID, GRID)


class Prefetcher:
    def __init__(self, drive, depth=3):
        self.drive = drive
        self.queue = queue.Queue(depth)
        threading.Thread(target=self._work, name="voxels", daemon=True).start()

    def _work(self):
        for index in range(len(self.drive)):
            self.queue.put(voxelize(self.drive[index]))
        self.queue.put(None)

    def __iter__(self):
        while (item := self.queue.get()) is not None:
            yield item


def detector():
    return nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * GRID * GRID, 4))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(detector())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step, voxels in enumerate(Prefetcher(Drive(rank, 400))):
        loss = model(voxels[None]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if rank == 0 and step % 20 == 0:
            print(f"sweep {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
