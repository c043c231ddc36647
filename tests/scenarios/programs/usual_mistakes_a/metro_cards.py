"""DDP: journeys from swipes of metro cards. The first process keeps the history of its numbers in a file."""

import json
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STATIONS = 30


class History:
    """Numbers by step. Steps are added by the training, pages are written by whoever asks for them."""

    def __init__(self, path: Path, page: int = 64) -> None:
        self.path, self.page = path, page
        self.rows: list[dict[str, float]] = []
        self.guard = threading.Lock()

    def add(self, **row: float) -> None:
        """One row, and a page when it is full."""
        with self.guard:
            self.rows.append(row)
            if len(self.rows) >= self.page:
                self.write()

    def write(self) -> None:
        """All rows that are not yet in the file."""
        with self.guard:
            rows, self.rows = self.rows, []
        with self.path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def every_minute(history: History, over: threading.Event) -> None:
    """Writes what there is, so that a crash loses little."""
    while not over.wait(60):
        history.write()


def main() -> None:
    """Four hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(STATIONS, 16), nn.Flatten(), nn.Linear(48, STATIONS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    history, over = None, threading.Event()
    if rank == 0:
        history = History(Path(tempfile.mkdtemp()) / "history.jsonl")
        threading.Thread(target=every_minute, args=(history, over), daemon=True).start()

    generator = torch.Generator().manual_seed(rank)
    for step in range(400):
        swipes = torch.randint(0, STATIONS, (32, 3), generator=generator)
        loss = nn.functional.cross_entropy(model(swipes), swipes.sum(1) % STATIONS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if history is not None:
            history.add(step=step, loss=loss.item())
    over.set()
    if history is not None:
        history.write()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
