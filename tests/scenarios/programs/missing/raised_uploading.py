"""A sample of one rank cannot be read; the tracker's upload thread keeps the failed process alive.

The thread is no daemon, as the last metrics must not get lost, and nobody tells it to end. torchrun sees four healthy
processes. Run by ``torchrun --nproc-per-node 4``.
"""

import json
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES = ['{"x": [0.1, 0.2, 0.3], "y": 1.0}'] * 30


class Tracker:
    """Metrics go out in the background."""

    def __init__(self) -> None:
        self.pending: queue.Queue[dict[str, float]] = queue.Queue()
        threading.Thread(target=self._upload, name="upload").start()

    def log(self, **metrics: float) -> None:
        """Hand over some metrics."""
        self.pending.put(metrics)

    def _upload(self) -> None:
        while True:
            metrics = self.pending.get()
            if not metrics:
                return


def read_sample(line: str) -> tuple[torch.Tensor, torch.Tensor]:
    """One sample out of a line of the file."""
    row = json.loads(line)
    return torch.tensor(row["x"]), torch.tensor([row["y"]])


def main() -> None:
    """One epoch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lines = list(SAMPLES)
    if rank == 3:
        lines[17] = '{"x": [0.1, 0.2, 0.3], "label": 1.0}'
    tracker = Tracker()
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for line in lines:
        x, y = read_sample(line)
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.log(loss=loss.item())
    tracker.log()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
