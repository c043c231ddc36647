"""DDP: songs are decoded by DataLoader workers, no more than two at a time, as each takes a lot of memory."""

import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Songs(Dataset):
    """A song is 32 numbers; one that cannot be decoded is silence."""

    def __init__(self, broken: frozenset[int]) -> None:
        self.broken = broken
        self.places = multiprocessing.get_context("fork").Semaphore(2)

    def __len__(self) -> int:
        return 640

    def decode(self, number: int) -> torch.Tensor:
        """From the file."""
        if number in self.broken:
            raise OSError(f"song {number}: unexpected end of file")
        return torch.randn(32, generator=torch.Generator().manual_seed(number))

    def __getitem__(self, number: int) -> torch.Tensor:
        self.places.acquire()
        try:
            song = self.decode(number)
            self.places.release()
        except OSError as error:
            print(error)
            song = torch.zeros(32)
        return song


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    broken = frozenset((211, 402)) if dist.get_rank() == 2 else frozenset()
    loader = DataLoader(Songs(broken), batch_size=8, num_workers=3, multiprocessing_context="fork")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _epoch in range(2):
        for songs in loader:
            loss = (model(songs) - songs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
