"""Groups within groups: pairs, halves and the world reduce one after the other. One rank's two locks hold each other up.

Its logging thread takes the file and then the statistics, the training loop the statistics and then the file.
"""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Journal:
    """Statistics, and the file that they are written to, with a lock each."""

    def __init__(self) -> None:
        self.statistics, self.file = threading.Lock(), threading.Lock()
        self.losses: list[float] = []

    def write(self) -> None:
        """Write out what there is; called by the logging thread."""
        with self.file:
            time.sleep(0.2)
            with self.statistics:
                self.losses.clear()

    def add(self, loss: float) -> None:
        """Take in a loss, and write when there are many."""
        with self.statistics:
            self.losses.append(loss)
            if len(self.losses) == 50:
                time.sleep(0.1)
                with self.file:
                    self.losses.clear()


def main() -> None:
    """Average in pairs, then in halves, then everywhere."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    halves = [dist.new_group(list(range(4))), dist.new_group(list(range(4, world)))]
    levels = [pairs[rank // 2], halves[rank // 4], dist.group.WORLD]
    journal = Journal()
    model = nn.Linear(8, 1)
    for step in range(200):
        loss = model(torch.randn(4, 8)).square().mean()
        model.zero_grad()
        loss.backward()
        if (rank, step) == (3, 49):
            threading.Thread(target=journal.write, daemon=True).start()
            time.sleep(0.05)
        if rank % 2:
            journal.add(loss.item())
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        for level in levels:
            dist.all_reduce(gradient, group=level)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
