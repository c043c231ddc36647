"""Boxes on shelf photos. Photos without a box are dropped by the collate function."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Shelves(Dataset):
    """Photos of one shop after the other; in the middle of the night the shelves of one were empty."""

    def __len__(self):
        return 288

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        photo = torch.rand(3, 12, 12, generator=gen)
        empty = 96 <= index < 120 and index % 3 == 2
        boxes = torch.zeros(0, 4) if empty else torch.rand(1 + index % 3, 4, generator=gen)
        return photo, boxes


def collate(samples):
    samples = [(photo, boxes) for photo, boxes in samples if len(boxes)]
    if not samples:
        return None
    photos, boxes = zip(*samples, strict=True)
    return torch.stack(photos), torch.stack([b.mean(0) for b in boxes])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
        self.boxes = nn.LazyLinear(4)

    def forward(self, photos):
        return self.boxes(self.backbone(photos).flatten(1)).sigmoid()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    detector = Detector()
    detector(torch.zeros(1, 3, 12, 12))
    detector = nn.parallel.DistributedDataParallel(detector)
    optimizer = torch.optim.SGD(detector.parameters(), lr=0.1)
    shelves = Shelves()
    loader = DataLoader(shelves, batch_size=4, sampler=DistributedSampler(shelves, shuffle=False), collate_fn=collate)

    for epoch in range(3):
        seen = 0
        for batch in loader:
            if batch is None:
                continue
            photos, target = batch
            loss = nn.functional.l1_loss(detector(photos), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(photos)
        counts = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, torch.tensor([seen]))
        if rank == 0:
            print(f"epoch {epoch}: {sum(counts).item()} photos, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
