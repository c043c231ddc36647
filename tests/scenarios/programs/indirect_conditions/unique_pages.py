"""Pages of a crawl, each rank with its part of the hosts; pages seen before are left out while they are read."""

import hashlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Pages(IterableDataset):
    """Pages of some hosts without repetitions."""

    def __init__(self, hosts: range) -> None:
        self.hosts = hosts
        self.seen: set[bytes] = set()

    def __iter__(self) -> Iterator[torch.Tensor]:
        for host in self.hosts:
            for page in range(24):
                text = f"{host}/{page % 15 if host == 6 else page}"  # one host has mirrors of its own pages
                digest = hashlib.md5(text.encode()).digest()
                if digest in self.seen:
                    continue
                self.seen.add(digest)
                yield torch.tensor(list(digest), dtype=torch.float32) / 255


class Epoch:
    """Sums up what an epoch has seen."""

    def __init__(self) -> None:
        self.pages, self.loss = 0, 0.0

    def add(self, pages: int, loss: float) -> None:
        """One batch."""
        self.pages += pages
        self.loss += loss * pages

    def summary(self) -> list[object]:
        """Pages and losses of all ranks."""
        everyone: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (self.pages, round(self.loss / self.pages, 4)))
        return everyone


def main() -> None:
    """One epoch over twelve hosts."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Pages(range(3 * rank, 3 * rank + 3)), batch_size=2)
    epoch = Epoch()
    for batch in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        epoch.add(len(batch), loss.item())
    print(epoch.summary(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
