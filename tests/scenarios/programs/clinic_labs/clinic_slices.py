"""Organ segmentation on CT slices: patients are dealt to the ranks, every slice is a sample."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SLICES_PER_PATIENT = [44, 40, 36, 40, 44, 28, 36, 36, 24]


@dataclass
class Config:
    epochs: int = 4
    batch_size: int = 4
    size: int = 64
    lr: float = 3e-3


class SliceDataset(Dataset):
    """All slices of some patients, made up on the fly."""

    def __init__(self, patients, size):
        self.size = size
        self.index = [(p, s) for p in patients for s in range(SLICES_PER_PATIENT[p])]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        patient, number = self.index[i]
        generator = torch.Generator().manual_seed(1000 * patient + number)
        image = torch.randn(1, self.size, self.size, generator=generator)
        return image, (F.avg_pool2d(image, 5, 1, 2) > 0.05).float()


class SmallUNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = F.interpolate(self.deep(F.max_pool2d(a, 2)), scale_factor=2)
        return self.out(torch.cat([a, b], 1))


def dice(logits, target):
    p = logits.sigmoid()
    return (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    config = Config()
    torch.manual_seed(7)
    patients = list(range(len(SLICES_PER_PATIENT)))[rank::world]
    loader = DataLoader(SliceDataset(patients, config.size), batch_size=config.batch_size, shuffle=True)
    model = DistributedDataParallel(SmallUNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        seen, score = 0, 0.0
        for images, masks in loader:
            logits = model(images)
            loss = F.binary_cross_entropy_with_logits(logits, masks) + 1 - dice(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen, score = seen + 1, score + float(dice(logits.detach(), masks))
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: dice {score / seen:.3f} in {len(patients)} patients", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
