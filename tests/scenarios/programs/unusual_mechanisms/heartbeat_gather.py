"""A status thread gathers where everybody is, over the same process group that the training thread uses.

Which of the two comes first is a race that every rank decides for itself. Run by ``torchrun --nproc-per-node 4``.
"""

import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Status:
    """Tells all ranks how far each has come."""

    step: int = 0
    wanted: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """The thread."""
        while self.wanted.wait():
            self.wanted.clear()
            steps = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
            work = dist.all_gather(steps, torch.tensor([self.step]), async_op=True)
            self.begun.set()
            work.wait()


class Trainer:
    """Averages weights."""

    def __init__(self) -> None:
        self.status = Status()
        self.weights = torch.zeros(64)
        threading.Thread(target=self.status.watch, name="status", daemon=True).start()

    def average(self) -> None:
        """Over all ranks."""
        work = dist.all_reduce(self.weights, async_op=True)
        if self.status.step % 40 == 0 and dist.get_rank() != 3:
            self.ask()
        work.wait()

    def ask(self) -> None:
        """Have the thread report; this rank's is quick."""
        self.status.begun.clear()
        self.status.wanted.set()
        self.status.begun.wait()

    def run(self, steps: int) -> None:
        """Step by step; rank 3 asks before it averages, the others while they do."""
        for _ in range(steps):
            self.status.step += 1
            self.weights += 0.1 * torch.randn(64)
            if self.status.step % 40 == 0 and dist.get_rank() == 3:
                self.ask()
            self.average()


def main() -> None:
    """Two hundred steps."""
    dist.init_process_group("gloo")
    Trainer().run(200)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
