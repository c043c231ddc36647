"""Training under a progress display, whose thread is told of the end when training is over. mp.spawn."""

import tempfile
import threading
from pathlib import Path
from types import TracebackType

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 4


class Display:
    """Prints from time to time until all steps are done."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.show)

    def __enter__(self) -> "Display":
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thread.join()

    def show(self) -> None:
        """Wait for steps."""
        with self.changed:
            self.changed.wait_for(lambda: self.left == 0)
        print("all steps are done", flush=True)

    def advance(self) -> None:
        """A step is done."""
        with self.changed:
            self.left -= 1
            self.changed.notify()


def batch(rank: int, step: int) -> torch.Tensor:
    """Rows; an exporter has left a column out once."""
    return torch.randn(4, 9 if (rank, step) == (1, 28) else 10)


def work(rank: int, rendezvous: str) -> None:
    """Fifty steps."""
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Display(50) as display:
        for step in range(50):
            optimizer.zero_grad()
            model(batch(rank, step)).square().mean().backward()
            optimizer.step()
            display.advance()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(str(Path(tempfile.mkdtemp()) / "rendezvous"),), nprocs=RANKS)
