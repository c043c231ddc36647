"""DDP: when a parcel will arrive. A process of its own writes what was learnt to a journal."""

import multiprocessing
import queue
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DEPOTS = {name: number for number, name in enumerate(("HAM", "MUC", "CGN", "LEJ", "STR"))}


class Journal(multiprocessing.get_context("fork").Process):
    """Lines are queued here and written there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.lines = multiprocessing.get_context("fork").Queue()
        self.start()

    def run(self) -> None:
        with self.path.open("a") as file:
            while multiprocessing.parent_process().is_alive():
                try:
                    line = self.lines.get(timeout=5)
                except queue.Empty:
                    continue
                if line is None:
                    return
                file.write(line + "\n")

    def finish(self) -> None:
        """What is queued is written first."""
        self.lines.put(None)
        self.join()


def parcels(rank: int, step: int) -> list[tuple[str, float]]:
    """Where each was handed in, and its weight."""
    names = list(DEPOTS)
    batch = [(names[(rank + step + i) % len(names)], 0.5 + i / 4) for i in range(8)]
    if (rank, step) == (2, 45):
        batch[3] = ("DTM", 1.5)
    return batch


def main() -> None:
    """Two hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    journal = Journal(Path(tempfile.mkdtemp()) / f"journal-{rank}.txt")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(len(DEPOTS) + 1, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(200):
        batch = parcels(rank, step)
        depots = torch.eye(len(DEPOTS))[[DEPOTS[name] for name, _ in batch]]
        weights = torch.tensor([[weight] for _, weight in batch])
        loss = nn.functional.mse_loss(model(torch.cat([depots, weights], 1)), 24 + 3 * weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.lines.put(f"{step} {loss.item():.4f}")
    journal.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
