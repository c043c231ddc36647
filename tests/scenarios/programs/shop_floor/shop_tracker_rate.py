"""Train the click model. The tracker writes one line of throughput every now and then."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 4000


class Tracker:
    """Counts samples, and writes a line of JSON for the dashboard."""

    def __init__(self, path: Path, every: int) -> None:
        self.path, self.every = path, every
        self.samples = 0
        self.started = time.monotonic()

    @property
    def samples_per_second(self) -> float:
        rate = torch.tensor([self.samples / (time.monotonic() - self.started)])
        dist.reduce(rate, dst=0)
        return rate.item()

    def observe(self, step: int, loss: torch.Tensor, batch: int) -> None:
        self.samples += batch
        if step % self.every == 0:
            self.write(step, loss)

    def write(self, step: int, loss: torch.Tensor) -> None:
        raise NotImplementedError


class FileTracker(Tracker):
    def write(self, step: int, loss: torch.Tensor) -> None:
        line = {"step": step, "loss": round(loss.item(), 4), "rate": self.samples_per_second}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class NullTracker(Tracker):
    def write(self, step: int, loss: torch.Tensor) -> None:
        pass


def click_batches(seed: int, size: int = 32):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.linspace(-1, 1, 24)
    while True:
        x = torch.randn(size, 24, generator=generator)
        yield x, (x @ weights > 0).float()
        time.sleep(0.02)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"clicks-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    tracker = (FileTracker if rank == 0 else NullTracker)(folder / "train.jsonl", every=120)
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, (x, y) in enumerate(click_batches(rank), 1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.observe(step, loss.detach(), len(x))
        if step == STEPS:
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
