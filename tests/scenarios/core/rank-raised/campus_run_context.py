"""Star-galaxy separation. A run is a context: it makes the folder and closes the books when it is over."""

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES = {"STAR": 0, "GALAXY": 1, "QSO": 2}


class Book:
    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, []

    def write(self, **row) -> None:
        self.rows.append(row)

    def close(self) -> None:
        self.path.write_text("\n".join(json.dumps(row) for row in self.rows))


@contextlib.contextmanager
def run(name: str):
    dist.init_process_group("gloo")
    folder = Path(tempfile.gettempdir(), f"{name}-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    book = Book(folder / f"rank{dist.get_rank()}.jsonl")
    try:
        yield book
    finally:
        book.close()
        dist.barrier()  # the summary below reads the books of all
        if dist.get_rank() == 0:
            rows = sum(len(path.read_text().splitlines()) for path in folder.glob("rank*.jsonl"))
            print(f"{name}: {rows} rows in {folder}", flush=True)
        dist.destroy_process_group()


def catalogue(rank: int, batches: int):
    """Magnitudes in five bands with the class that a human gave."""
    rng = torch.Generator().manual_seed(rank)
    names = list(CLASSES)
    for number in range(batches):
        index = torch.randint(0, 3, (16,), generator=rng)
        labels = [names[i] for i in index.tolist()]
        if rank == 2 and number == 44:
            labels[5] = "ARTIFACT"
        yield torch.randn(16, 5, generator=rng) + index.unsqueeze(1), labels


def encode(labels: list[str]) -> torch.Tensor:
    return torch.tensor([CLASSES[label] for label in labels])


def train(book: Book) -> None:
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (magnitudes, labels) in enumerate(catalogue(dist.get_rank(), 500)):
        loss = nn.functional.cross_entropy(model(magnitudes), encode(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.write(step=step, loss=round(loss.item(), 4))
        time.sleep(0.06)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with run("stars") as book:
        train(book)
