"""Reads scanned dockets page by page and pre-trains a masked page encoder on them."""
import multiprocessing as mp
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Page:
    docket: int
    number: int
    exhibits: tuple = ()


def register(registry, pages):
    """The list of pages of one registry; only the commercial registry (0) has annexed exhibits."""
    listed = []
    for n in range(pages):
        annexed = (n % 7, n % 11) if registry == 0 and n == 2410 else ()
        listed.append(Page(docket=n // 8, number=n % 8, exhibits=annexed))
    return listed


class Scans(Dataset):
    """Pages as vectors. Pages are unpacked into a folder that is shared by the loader's workers."""

    def __init__(self, pages, seed):
        self.pages = pages
        self.seed = seed
        self.unpacking = mp.Lock()

    def __len__(self):
        return len(self.pages)

    def _unpack(self, docket, number):
        with self.unpacking:
            gen = torch.Generator().manual_seed(self.seed + 97 * docket + number)
            return torch.rand(128, generator=gen)

    def _with_exhibits(self, page):
        with self.unpacking:
            parts = [self._unpack(page.docket, 100 + e) for e in page.exhibits]
        return torch.stack(parts).mean(dim=0)

    def __getitem__(self, index):
        page = self.pages[index]
        vector = self._unpack(page.docket, page.number)
        if page.exhibits:
            vector = (vector + self._with_exhibits(page)) / 2
        return vector


class PageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(128, 64)
        self.up = nn.Linear(64, 128)

    def forward(self, page):
        seen = page * (torch.rand_like(page) > 0.3)
        return self.up(torch.relu(self.down(seen)))


def pretrain(epochs=3):
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DDP(PageEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scans = Scans(register(rank, 4000), seed=10_000 * rank)
    loader = DataLoader(scans, batch_size=8, num_workers=2, persistent_workers=True)
    for epoch in range(epochs):
        for number, pages in enumerate(loader):
            loss = nn.functional.mse_loss(model(pages), pages)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and number % 50 == 0:
                print(f"epoch {epoch} page batch {number} loss {loss.item():.4f} pid {os.getpid()}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pretrain()
    dist.barrier()
    dist.destroy_process_group()
