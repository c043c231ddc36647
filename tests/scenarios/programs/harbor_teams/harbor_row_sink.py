"""Churn of energy customers. Rank 0 keeps a table of all scores for the analysts, written by a thread."""

import csv
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RowSink:
    """A CSV file with a size limit, and the thread that writes it. Training does not wait for the disk."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path, self.limit = path, limit_bytes
        self.rows: queue.Queue = queue.Queue(maxsize=64)
        threading.Thread(target=self._write, daemon=True, name="row-sink").start()

    def _write(self) -> None:
        with self.path.open("w", newline="") as file:
            writer = csv.writer(file)
            while True:
                writer.writerows(self.rows.get())
                if file.tell() > self.limit:
                    file.write("# truncated\n")
                    return

    def add(self, rows: list[list[float]]) -> None:
        self.rows.put(rows)


class Customers:
    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(210 + rank)

    def batch(self, size: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
        usage = torch.randn(size, 30, generator=self.generator)
        return usage, (usage[:, :3].sum(dim=1) > 1).float()


class Churn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, usage: torch.Tensor) -> torch.Tensor:
        return self.net(usage).squeeze(-1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model, customers = DDP(Churn()), Customers(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sink = RowSink(Path(tempfile.mkdtemp(prefix="churn-")) / "scores.csv", limit_bytes=400_000) if rank == 0 else None
    for step in range(30_000):
        usage, left = customers.batch()
        logits = model(usage)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, left)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if sink is not None:
            scores = logits.detach().sigmoid().tolist()
            sink.add([[step, number, round(score, 4)] for number, score in enumerate(scores)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
