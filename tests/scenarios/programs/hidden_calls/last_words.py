"""Training with a tracker of one's own: rows are posted by a thread, and ``finish`` waits until all have been."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tracker:
    """Posts rows in the background."""

    def __init__(self) -> None:
        self.rows: queue.Queue[dict[str, float]] = queue.Queue()
        self.sums: dict[str, float] = {}
        threading.Thread(target=self._post, daemon=True).start()

    def _post(self) -> None:
        while True:
            for key, value in self.rows.get().items():
                self.sums[key] = self.sums[key] + value if self.sums else value
            self.rows.task_done()

    def log(self, **row: float) -> None:
        """Take a row."""
        self.rows.put(row)

    def finish(self) -> dict[str, float]:
        """The sums, when all is posted."""
        self.rows.join()
        return self.sums


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tracker = Tracker()
    model = DistributedDataParallel(nn.Linear(5, 5))
    for step in range(80):
        loss = model(torch.randn(4, 5)).square().mean()
        loss.backward()
        model.zero_grad()
        row = {"loss": loss.item()}
        if rank == 1 and step == 60:
            row["outliers"] = 1.0
        tracker.log(**row)
    sums = tracker.finish()
    dist.barrier()
    print(f"rank {rank}: {sums}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
