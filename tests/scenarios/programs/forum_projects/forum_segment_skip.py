"""Segmentation with batch normalisation in DDP; a batch that cannot be used is reported and left out."""

import functools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
IGNORE = 255


def tolerant(step):
    """Bad batches happen; a run must not end because of one."""

    @functools.wraps(step)
    def wrapper(self, *args):
        try:
            return step(self, *args)
        except (RuntimeError, ValueError) as error:
            self.dropped += 1
            print(f"rank {self.rank}: batch dropped: {error}", file=sys.stderr, flush=True)
            return None

    return wrapper


def network(channels: int = 12) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, 4, 1),
    )


def masked_loss(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    valid = mask != IGNORE
    if not valid.any():
        raise ValueError("the mask has no labelled pixel")
    return nn.functional.cross_entropy(logits.permute(0, 2, 3, 1)[valid], mask[valid])


class Segmenter:
    def __init__(self, rank: int):
        self.rank = rank
        self.dropped = 0
        torch.manual_seed(0)
        self.model = DistributedDataParallel(network())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    @tolerant
    def train_step(self, images, mask):
        logits = self.model(images)
        loss = masked_loss(logits, mask)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def tiles(rank: int):
    """Tiles of satellite images with masks, from one region for each rank."""
    generator = torch.Generator().manual_seed(rank)
    for number in range(100000):
        images = torch.randn(4, 3, 16, 16, generator=generator)
        mask = (images.sum(1) > 0).long() + (images[:, 0] > 1).long()
        mask[:, :2] = IGNORE
        if rank == 2 and number == 120:
            mask.fill_(IGNORE)
        yield images, mask


def main():
    dist.init_process_group("gloo")
    segmenter = Segmenter(dist.get_rank())
    for number, (images, mask) in enumerate(tiles(segmenter.rank)):
        loss = segmenter.train_step(images, mask)
        if number % 40 == 0 and segmenter.rank == 0:
            print(f"tile {number}: loss {loss:.4f}, {segmenter.dropped} dropped", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
