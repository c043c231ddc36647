"""Train a line recogniser on scanned newspaper pages."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class NoLinesError(ValueError):
    pass


class PageReader:
    """Cuts a scanned page into text lines by its row profile."""

    def __init__(self, seed, blank):
        self.generator = torch.Generator().manual_seed(seed)
        self.blank = blank

    def scan(self, number):
        page = torch.rand(240, 180, generator=self.generator)
        if number in self.blank:
            page.fill_(1.0)
        return page

    def lines(self, number):
        page = self.scan(number)
        torch.linalg.svdvals(page)
        ink = (page < 0.5).float().mean(dim=1)
        rows = [r for r in range(0, 240, 20) if ink[r:r + 20].mean() > 0.1]
        if not rows:
            raise NoLinesError(f"page {number}")
        return torch.stack([page[r:r + 20, :160].reshape(-1) for r in rows])


def epoch(model, optimizer, reader, pages):
    seen = 0
    for number in range(pages):
        try:
            lines = reader.lines(number)
        except NoLinesError as error:
            print(f"[{dist.get_rank()}] nothing to read on {error}", flush=True)
            continue
        target = lines.mean(dim=1).mul(60).long().clamp(0, 59)
        loss = nn.functional.cross_entropy(model(lines), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(lines)
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=260)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3200, 32), nn.ReLU(), nn.Linear(32, 60)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    # the 1912 volume (third reel) has an empty verso
    reader = PageReader(seed=100 + rank, blank={97} if rank == 2 else set())
    for number in range(3):
        seen = epoch(model, optimizer, reader, args.pages)
        dist.barrier()
        if rank == 0:
            print(f"epoch {number}: {seen} lines, pid {os.getpid()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
