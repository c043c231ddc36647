"""Train a small CNN on (synthetic) photos of garden birds; validate after every epoch."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2)
    )


def make_data(n, seed):
    gen = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, 3, 16, 16, generator=gen), torch.randint(0, 8, (n,), generator=gen))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for images, species in loader:
        scores = model.module(images)
        counts += torch.tensor([(scores.argmax(1) == species).sum().item(), len(species)])
    dist.reduce(counts, dst=0)
    model.train()
    return (counts[0] / counts[1]).item()


def train_one_epoch(model, loader, optimizer):
    for images, species in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), species).backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = nn.Sequential(conv(3, 8), conv(8, 16), nn.Flatten(), nn.Linear(16 * 16, 8))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    train_set = make_data(240, seed=0)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    val_loader = DataLoader(make_data(64, seed=1), batch_size=args.batch_size)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader, optimizer)
        if rank == 0:
            accuracy = validate(model, val_loader)
            print(f"epoch {epoch}: accuracy {accuracy:.3f}")
            if accuracy > best:
                best = accuracy
                torch.save(model.module.state_dict(), "/tmp/bird_photos_best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
