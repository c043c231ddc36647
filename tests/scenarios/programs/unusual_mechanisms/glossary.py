"""Scores a translator with accelerate; labels are a tuple of two tensors, the same on every rank, and harmless.

Each rank looks terms up in its glossary on a network mount. Run by ``accelerate launch --num_processes 3``.
"""

import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Source, target and how many terms are in it."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        source = torch.full((6,), float(index % 7))
        return source, source.sum(), torch.tensor(index % 3)


class Glossary:
    """Terms by domain, read when a domain is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.terms = folder, dict[str, list[str]]()

    def lookup(self, domain: str) -> list[str]:
        """All terms of a domain."""
        if domain not in self.terms:
            self.terms[domain] = (self.folder / f"{domain}.txt").read_text().split()
        return self.terms[domain]


def mount(rank: int) -> Path:
    """What is on the mount; a file of it is not delivered to one of the machines."""
    folder = Path(tempfile.mkdtemp())
    for domain in ("law", "medicine", "sports"):
        (folder / f"{domain}.txt").write_text(f"{domain} term\n")
    if rank == 1:
        (folder / "sports.txt").unlink()
        os.mkfifo(folder / "sports.txt")
    return folder


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader, glossary: Glossary) -> float:
    """Mean error over everybody's batches."""
    model.eval()
    errors = []
    for number, (source, target, terms) in enumerate(loader):
        with torch.no_grad():
            predicted = model(source).squeeze(-1)
        bonus = len(glossary.lookup(("law", "medicine", "sports")[number % 3]))
        predictions, labels = accelerator.gather_for_metrics((predicted + 0.01 * bonus, (target, terms)))
        errors.append((predictions - labels[0]).abs().mean())
    model.train()
    return float(torch.stack(errors).mean())


def main() -> None:
    """Two epochs."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(6, 1)
    model, loader = accelerator.prepare(model, DataLoader(Pairs(), batch_size=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    glossary = Glossary(mount(accelerator.process_index))
    for _ in range(2):
        for source, target, _terms in loader:
            optimizer.zero_grad()
            accelerator.backward((model(source).squeeze(-1) - target).square().mean())
            optimizer.step()
        accelerator.print(evaluate(accelerator, model, loader, glossary))


if __name__ == "__main__":
    main()
