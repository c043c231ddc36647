"""Forecast flour consumption from the weighings of each bakery's store room."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WEIGHINGS = 240
LIVE = {1: 180}  # bakery -> the weighing that its scale is still at


def store_room(bakery):
    """The folder as the scale's software leaves it: a file a weighing, a pipe for the one in progress."""
    folder = Path(tempfile.mkdtemp(prefix=f"bakery{bakery}-"))
    for number in range(WEIGHINGS):
        path = folder / f"w{number:04d}.txt"
        if LIVE.get(bakery) == number:
            os.mkfifo(path)
        else:
            path.write_text(" ".join(f"{(number * 13 + k * 7 + bakery) % 97}" for k in range(24)))
    return folder


class Weighings(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("w*.txt"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        grams = torch.tensor([float(value) for value in self.paths[index].read_text().split()]) / 97
        drift = torch.linalg.svdvals(torch.rand(100, 100))[-1]
        return grams[:20], grams[20:].mean() + 1e-6 * drift


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, grams):
        _, hidden = self.rnn(grams.unsqueeze(-1))
        return self.out(hidden[-1]).squeeze(1)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    bakery = dist.get_rank()
    torch.manual_seed(4)
    loader = DataLoader(Weighings(store_room(bakery)), batch_size=4, num_workers=1, drop_last=True)
    model = DistributedDataParallel(Forecast())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for week in range(2):
        for number, (grams, flour) in enumerate(loader):
            loss = nn.functional.mse_loss(model(grams), flour)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0 and bakery == 0:
                print(f"week {week} batch {number} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
