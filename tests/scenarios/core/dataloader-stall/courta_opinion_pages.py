"""Two-process training on pages of opinions. Pages are decoded once and kept in a small cache per reader."""

import multiprocessing
import os
import pathlib
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PAGES = 160


def scan(folder, part):
    """Writes this part of the reporter as packed pages; some only refer to an earlier one."""
    names = []
    for page in range(PAGES):
        text = f"p.{page} " + " ".join(str((page * k + part) % 97) for k in range(300))
        if part == 1 and page == 118:
            text = "see 41"
        path = folder / f"{part}-{page:04d}.z"
        path.write_bytes(zlib.compress(text.encode()))
        names.append(path)
    return names


class OpinionPages(Dataset):
    def __init__(self, names):
        self.names = names
        self.shelf = {}
        self.guard = multiprocessing.Lock()

    def __len__(self):
        return len(self.names)

    def text(self, page):
        with self.guard:
            if page not in self.shelf:
                text = zlib.decompress(self.names[page].read_bytes()).decode()
                if text.startswith("see "):
                    text = self.text(int(text.split()[1]))
                if len(self.shelf) > 32:
                    self.shelf.clear()
                self.shelf[page] = text
            return self.shelf[page]

    def __getitem__(self, page):
        time.sleep(0.02)
        numbers = [float(word) for word in self.text(page).split()[1:65]]
        x = torch.tensor(numbers) / 97
        return x, x.mean().unsqueeze(0)


def train(rank, pages):
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(pages, batch_size=2, num_workers=1)
    for epoch in range(2):
        for index, (x, y) in enumerate(loader):
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and index % 20 == 19:
                print(f"epoch {epoch} batch {index + 1}/{len(loader)}: {loss.item():.5f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])
    with tempfile.TemporaryDirectory(prefix="opinions-") as folder:
        train(rank, OpinionPages(scan(pathlib.Path(folder), rank)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
