"""Autoencoder on digitised telemetry reels of old missions; two tape drives per archive host."""
import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

FORK = multiprocessing.get_context("fork")
WORDS = 128
SYNC = 0xFAF320


class Reel(Dataset):
    def __init__(self, number, frames):
        self.number = number
        self.frames = frames
        self.drives = FORK.Semaphore(2)
        self.blank = torch.zeros(WORDS)

    def __len__(self):
        return self.frames

    def _read(self, index):
        generator = torch.Generator().manual_seed(self.number * 1_000_003 + index)
        samples = torch.randn(WORDS, 1200, generator=generator)
        marker = SYNC
        if self.number == 8 and index > 1400 and index % 97 == 0:
            marker = 0xFAF300
        return marker, samples.cumsum(dim=1)[:, -1] / 35

    def __getitem__(self, index):
        self.drives.acquire()
        marker, words = self._read(index)
        if marker != SYNC:
            return self.blank
        self.drives.release()
        return words


class Codec(nn.Module):
    def __init__(self, code=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WORDS, 256), nn.ReLU(), nn.Linear(256, code))
        self.decoder = nn.Sequential(nn.Linear(code, 256), nn.ReLU(), nn.Linear(256, WORDS))

    def forward(self, words):
        return self.decoder(self.encoder(words))


def train_epoch(model, loader, optimizer):
    total = torch.zeros(2)
    for words in loader:
        loss = nn.functional.mse_loss(model(words), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reel = Reel(number=7 + rank, frames=4800)
    loader = DataLoader(
        reel, batch_size=16, num_workers=2, persistent_workers=True, multiprocessing_context=FORK
    )
    torch.manual_seed(2)
    model = DDP(Codec())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(6):
        mean = train_epoch(model, loader, optimizer)
        if rank == 0:
            print(f"epoch {epoch}: reconstruction {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
