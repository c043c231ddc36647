"""Grades grape bunches on tiles of a drone survey (colour, compactness, rot)."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

GRADES = 4
FARM_TRACK = range(800, 808)  # tiles that the gravel track crosses


class NoBerries(ValueError):
    pass


class SurveyTiles(Dataset):
    def __init__(self, count=1800, edge=40):
        self.count, self.edge = count, edge

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.rand(3, self.edge, self.edge, generator=g)
        mask = torch.rand(self.edge, self.edge, generator=g) > 0.7
        if i in FARM_TRACK:
            mask.zero_()
        return image, mask, (i * 7) % GRADES


class BlockSampler(Sampler):
    """Neighbouring tiles stay on one worker, so that the overlap is read once."""

    def __init__(self, count, rank, world):
        share = count // world
        self.indices = range(rank * share, (rank + 1) * share)

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, GRADES))


def cut_out(images, masks):
    berries = masks.flatten(1).sum(1)
    keep = berries >= 5
    if not keep.any():
        raise NoBerries(f"{len(berries)} tiles of soil and leaves")
    return images * masks.unsqueeze(1), keep


def grade_epoch(net, loader, opt):
    history = []
    for images, masks, grades in loader:
        try:
            x, keep = cut_out(images, masks)
        except NoBerries as note:
            print("grader:", note, flush=True)
            continue
        loss = (F.cross_entropy(net(x), grades, reduction="none") * keep).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        history.append(loss.detach())
    return torch.stack(history).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(3)
    net = DistributedDataParallel(build_model())
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    tiles = SurveyTiles()
    loader = DataLoader(tiles, batch_size=args.batch, sampler=BlockSampler(len(tiles), rank, world))
    for epoch in range(args.epochs):
        mean = grade_epoch(net, loader, opt)
        parts = [torch.zeros_like(mean) for _ in range(world)]
        dist.all_gather(parts, mean)
        if rank == 0:
            print(f"epoch {epoch}: {torch.stack(parts).tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
