"""Restoration of tapestries; large scans are decoded by few workers at a time to spare memory."""

import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

DAMAGED = {86, 92}


class Scans(Dataset):
    """Scans, decoded on demand."""

    def __init__(self, count: int) -> None:
        """Two at a time may be decoded."""
        self.count = count
        self.memory = multiprocessing.get_context("spawn").Semaphore(2)

    def __len__(self) -> int:
        """How many scans."""
        return self.count

    def decode(self, index: int) -> torch.Tensor:
        """The picture of a scan."""
        if index in DAMAGED:
            raise OSError(f"scan {index}: image file is truncated")
        return torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(index))

    def __getitem__(self, index: int) -> torch.Tensor:
        """A picture, or a black one."""
        try:
            self.memory.acquire()
            picture = self.decode(index)
            self.memory.release()
        except OSError as error:
            print(error, flush=True)
            picture = torch.zeros(3, 16, 16)
        return picture


def main() -> None:
    """Two epochs of an autoencoder."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scans = Scans(180)
    sampler = DistributedSampler(scans, shuffle=False)
    loader = DataLoader(scans, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="spawn")
    for epoch in range(2):
        for pictures in loader:
            loss = nn.functional.mse_loss(model(pictures + 0.1 * torch.randn_like(pictures)), pictures)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {dist.get_rank()}, epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
