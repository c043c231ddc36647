"""Sorting chestnuts by their pictures: sound, wormy or split."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Sorter(nn.Module):
    """Two convolutions and a head."""

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(16, 3)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Scores of the three classes."""
        return self.head(self.features(pictures).flatten(1))


def pictures_of(count: int, seed: int) -> TensorDataset:
    """Small grey pictures with a class each."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    return TensorDataset(torch.randn(count, 1, 10, 10, generator=generator) + labels.view(-1, 1, 1, 1), labels)


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> float:
    """The share of right answers."""
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main() -> None:
    """Train, and validate after each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Sorter())
    train_set = pictures_of(192, 0)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    valid_loader = DataLoader(pictures_of(48, 1), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {validate(model, valid_loader):.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
