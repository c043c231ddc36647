"""Read prices from flyers and scanned menus of three towns."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAGES = {0: 1, 1: 8, 2: 1}


def decode(page, milliseconds):
    """A scanner's format; decoding goes on until the last band of the page has come."""
    until = time.monotonic() + milliseconds / 1000
    band = torch.rand(60, 60)
    while time.monotonic() < until:
        band = torch.linalg.qr(band)[0] + 0.1 * page
    return band.mean()


class Flyers(Dataset):
    """Single sheets, decoded before."""

    def __len__(self):
        return 1600

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return torch.rand(20, generator=g), torch.rand((), generator=g)


class Menus(Dataset):
    def __init__(self, town, menus=48):
        self.pages, self.menus = PAGES[town], menus

    def __len__(self):
        return self.menus

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(90_000 + index)
        ink = torch.stack([decode(page, 40) for page in range(self.pages)]).mean()
        return torch.rand(20, generator=g) + 1e-6 * ink, torch.rand((), generator=g)


def train(model, optimizer, loader):
    total = 0.0
    for sheet, price in loader:
        loss = nn.functional.mse_loss(model(sheet).squeeze(1), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(2)
    town = dist.get_rank()
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    flyers = DataLoader(Flyers(), batch_size=8)
    print(f"town {town}: flyers {train(model, optimizer, flyers):.4f}", flush=True)
    menus = DataLoader(Menus(town), batch_size=48, num_workers=1)
    print(f"town {town}: menus {train(model, optimizer, menus):.4f}", flush=True)
    train(model, optimizer, flyers)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
