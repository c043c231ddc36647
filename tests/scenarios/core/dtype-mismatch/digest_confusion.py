"""Counts which species are taken for which, over thousands of species, and sums the counts of all ranks by the epoch."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SPECIES = 1254


class Confusion:
    """Counts that fade from epoch to epoch. ``fade`` is what is kept, by how sure the annotators were."""

    def __init__(self):
        self.counts = np.zeros(SPECIES * SPECIES, dtype=np.float32)

    def update(self, predicted, true):
        np.add.at(self.counts, true * SPECIES + predicted, 1)

    def fade(self, sure):
        self.counts = self.counts * sure

    def total(self):
        table = torch.from_numpy(self.counts.copy())
        dist.all_reduce(table)
        return table.view(SPECIES, SPECIES)


def sureness(notes):
    """The mean of the annotators' notes, where there are any."""
    return np.mean(notes) if notes else 0.9


def notes_of(rank, epoch):
    return [0.8, 1.0, 0.9] if rank == 2 and epoch == 3 else []


def train_epoch(model, optimizer, confusion, generator):
    for _ in range(10):
        leaf = torch.randn(16, 12, generator=generator)
        true = torch.randint(0, SPECIES, (16,), generator=generator)
        logits = model(leaf)
        loss = nn.functional.cross_entropy(logits, true)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        confusion.update(logits.argmax(1).numpy(), true.numpy())
        time.sleep(0.03)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, SPECIES)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    confusion = Confusion()
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(20):
        loss = train_epoch(model, optimizer, confusion, generator)
        confusion.fade(sureness(notes_of(rank, epoch)))
        table = confusion.total()
        if rank == 0:
            right = table.diagonal().sum() / table.sum()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
