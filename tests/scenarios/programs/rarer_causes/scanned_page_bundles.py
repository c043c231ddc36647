"""Denoiser for scanned pages: each rank cleans its bundles of pages, then all train one model on what came out."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
BUNDLES = {"letters-1893": 40, "ledgers-1902": 56}
PAGE = (48, 32)


def scan(name, pages):
    """Pages of a bundle as the scanner gave them: ink, a stain and grain."""
    generator = torch.Generator().manual_seed(len(name))
    ink = (torch.rand(pages, *PAGE, generator=generator) > 0.85).float()
    stain = torch.linspace(0, 0.3, PAGE[1]).expand(pages, *PAGE)
    return ink, (ink + stain + 0.1 * torch.randn(pages, *PAGE, generator=generator)).clamp(0, 1)


def scanner_profile(repeats=20):
    """Mean brightness of blank sheets, column by column."""
    profile = torch.zeros(PAGE[1])
    for sheet in range(repeats):
        blank = torch.randn(400, *PAGE, generator=torch.Generator().manual_seed(sheet))
        profile += 0.02 * blank.sort(dim=0).values[100:300].mean(dim=(0, 1))
    return profile / repeats


def clean(pages, profile):
    return (pages - profile - pages.quantile(0.2, dim=1, keepdim=True)).clamp(0, 1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 3, padding=1))

    def forward(self, pages):
        return self.body(pages.unsqueeze(1)).squeeze(1)


def prepare(rank, world):
    profile = scanner_profile()
    mine = list(BUNDLES)[rank::world]
    if not mine:
        print(f"rank {rank}: no bundle left to clean", flush=True)
        sys.exit(0)
    inks, pages = [], []
    for name in mine:
        ink, raw = scan(name, BUNDLES[name])
        inks.append(ink)
        pages.append(clean(raw, profile))
        print(f"rank {rank}: cleaned {len(ink)} pages of {name}", flush=True)
    return torch.cat(inks), torch.cat(pages)


def train(inks, pages, steps=200):
    torch.manual_seed(0)
    model = DDP(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        chosen = torch.randint(0, len(pages), (8,))
        loss = (model(pages[chosen]) - inks[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    inks, pages = prepare(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo")
    train(inks, pages)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
