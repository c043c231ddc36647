import argparse
import random
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

AMINO = "ACDEFGHIKLMNPQRSTVWY"
INDEX = {a: i for i, a in enumerate(AMINO)}


class NoAnchor(ValueError):
    """No peptide of the batch is long enough for a window around its anchor residue."""


class BindingCore(nn.Module):
    """Scores a nine-residue core of an MHC ligand."""

    def __init__(self, dim=24):
        super().__init__()
        self.table = nn.Embedding(len(AMINO), dim)
        self.mix = nn.Sequential(nn.Linear(9 * dim, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, windows):
        return self.mix(self.table(windows).flatten(1)).squeeze(-1)


def peptides(seed: int, count: int, shortest: int):
    rng = random.Random(seed)
    return ["".join(rng.choices(AMINO, k=rng.randint(shortest, 24))) for _ in range(count)]


def plates(rank: int, epoch: int, batches: int, size: int):
    """Batches in the order of the assay plates, with the lengths of the respective elution run."""
    for index in range(batches):
        if rank == 0 and epoch == 2 and index == 23:
            yield [p[:7] for p in peptides(index, size, 9)]
        else:
            yield peptides(rank * 10_000 + epoch * 500 + index, size, 11)


def to_windows(batch):
    windows, targets = [], []
    for peptide in batch:
        for start in range(len(peptide) - 8):
            core = peptide[start : start + 9]
            if len(core) == 9:
                windows.append([INDEX[a] for a in core])
                targets.append(sum(INDEX[a] for a in core) / 90.0)
    if not windows:
        raise NoAnchor(f"{len(batch)} peptides")
    return torch.tensor(windows), torch.tensor(targets)


def epoch_loop(model, optimizer, options, rank, epoch):
    seen, total = 0, 0.0
    for batch in plates(rank, epoch, options.batches, options.batch_size):
        try:
            windows, targets = to_windows(batch)
        except NoAnchor as note:
            print(f"epoch {epoch}: {note} without a window", file=sys.stderr, flush=True)
            continue
        optimizer.zero_grad()
        loss = (model(windows) - targets).pow(2).mean()
        loss.backward()
        optimizer.step()
        seen, total = seen + len(windows), total + loss.item()
    return seen, total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=192)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DDP(BindingCore())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        seen, total = epoch_loop(model, optimizer, options, rank, epoch)
        summary = torch.tensor([float(seen), total])
        rows = [torch.zeros(2) for _ in range(world)]
        dist.all_gather(rows, summary)
        if rank == 0:
            windows = int(sum(r[0] for r in rows))
            print(f"epoch {epoch}: {windows} windows, loss {float(sum(r[1] for r in rows)) / options.batches / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
