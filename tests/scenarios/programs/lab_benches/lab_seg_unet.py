"""Lesion segmentation with a small U-Net. The optimizer's state is sharded over the ranks."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down, self.middle = block(1, width), block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Conv2d(2 * width, 1, 1)

    def forward(self, image):
        skip = self.down(image)
        deep = self.middle(F.max_pool2d(skip, 2))
        return self.last(torch.cat([skip, self.up(deep)], 1))


def slices(rank, count, size=24):
    """Slices with one round lesion each."""
    generator = torch.Generator().manual_seed(rank)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    for _ in range(count):
        row, column, radius = torch.randint(6, 18, (3,), generator=generator).tolist()
        mask = ((rows - row) ** 2 + (columns - column) ** 2 < (radius / 3) ** 2).float()[None, None]
        time.sleep(0.03)
        yield mask + 0.4 * torch.randn(mask.shape, generator=generator), mask


def dice(logits, mask):
    overlap = ((logits > 0) * mask).sum()
    return (2 * overlap / ((logits > 0).sum() + mask.sum() + 1e-6)).item()


class BestKeeper:
    """Keeps the weights and the optimizer's state of the epoch with the best mean Dice score."""

    def __init__(self, path, after):
        self.path, self.after, self.best = path, after, -1.0

    def __call__(self, epoch, score, model, optimizer):
        if epoch < self.after or score <= self.best:
            return
        self.best = score
        optimizer.consolidate_state_dict(to=0)
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "dice": score}, self.path)
        print(f"  kept epoch {epoch} ({score:.3f})", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(UNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)
    keep = BestKeeper(os.path.join(tempfile.mkdtemp(), "best.pt"), after=2)
    for epoch in range(8):
        scores = []
        for image, mask in slices(rank + 10 * epoch, 15):
            logits = model(image)
            loss = F.binary_cross_entropy_with_logits(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scores.append(dice(logits.detach(), mask))
        if rank == 0:
            mean = sum(scores) / len(scores)
            print(f"epoch {epoch}: Dice {mean:.3f}", flush=True)
            keep(epoch, mean, model, optimizer)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
