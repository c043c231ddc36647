"""Photographs of twins: two pictures of one person belong together, all others in the batch do not."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PAIRS = 240


class Album(Dataset):
    """Pairs of pictures, and whether both are sharp. Pages of the second album were stuck together."""

    def __init__(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        self.left = torch.randn(PAIRS, 32, generator=generator)
        self.right = self.left + 0.1 * torch.randn(PAIRS, 32, generator=generator)
        self.sharp = torch.ones(PAIRS, dtype=torch.bool)
        self.sharp[::7] = False
        if number == 1:
            self.sharp[88:95] = False

    def __len__(self) -> int:
        return PAIRS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.left[index], self.right[index], self.sharp[index]


def contrast(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Each picture has to find its other half among all."""
    scores = nn.functional.normalize(left, dim=1) @ nn.functional.normalize(right, dim=1).T
    return nn.functional.cross_entropy(scores / 0.1, torch.arange(len(left)))


def main() -> None:
    """Four epochs of thirty batches."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Album(rank), batch_size=8)
    for epoch in range(4):
        total = 0.0
        for left, right, sharp in loader:
            left, right = left[sharp], right[sharp]
            if len(left) < 2:
                continue
            first, second = model(torch.cat([left, right])).chunk(2)
            loss = contrast(first, second)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {total / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
