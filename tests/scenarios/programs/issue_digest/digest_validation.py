"""Trains a detector of cracks; after each epoch the first rank validates on the whole held-out set."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HELD_OUT, TILE = 1120, 48


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        )
        self.head = nn.Linear(48, 2)

    def forward(self, tiles):
        return self.head(self.features(tiles).flatten(1))


def tiles(count, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, TILE, TILE, generator=generator)
    cracked = torch.rand(count, generator=generator) < 0.5
    images[cracked, :, TILE // 2] = 0.0
    return images, cracked.long()


@torch.no_grad()
def validate(detector):
    detector.eval()
    right = 0
    for start in range(0, HELD_OUT, 8):
        images, cracked = tiles(8, seed=100_000 + start)
        for flipped in (images, images.flip(2), images.flip(3), images.flip(2, 3)):  # as it is shown, and mirrored
            right += int((detector(flipped).argmax(1) == cracked).sum())
    detector.train()
    return right / (4 * HELD_OUT)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Detector())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(30):
        images, cracked = tiles(4, seed=1000 * rank + step)
        loss = nn.functional.cross_entropy(model(images), cracked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    if rank == 0:
        print(f"validation: {validate(model.module):.3f}", flush=True)
    dist.barrier()
    for step in range(10):
        images, cracked = tiles(4, seed=2000 * rank + step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), cracked).backward()
        optimizer.step()
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
