"""DDP over shards of differing length: all ranks take as many batches as the poorest has; SIGALRM writes a status."""

import itertools
import signal
import threading
import time
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    """Counts; may be asked at any time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 0

    def add(self, number: int) -> None:
        """So many more."""
        with self.lock:
            self.count += number
            time.sleep(0.01)

    def show(self, number: int, frame: FrameType | None) -> None:
        """One line."""
        with self.lock:
            print(f"{self.count} rows", flush=True)


def warm(worker: int) -> None:
    """What a worker does first."""
    time.sleep(1.5 if dist.get_rank() == 1 else 0.1)


def shared_length(loader: DataLoader) -> int:
    """The least number of batches."""
    length = torch.tensor(len(loader))
    dist.all_reduce(length, op=dist.ReduceOp.MIN)
    return int(length.item())


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    meter = Meter()
    signal.signal(signal.SIGALRM, meter.show)
    signal.setitimer(signal.ITIMER_REAL, 0.7, 0.7)
    rows = torch.randn(200 + 30 * dist.get_rank(), 9)
    loader = DataLoader(TensorDataset(rows), batch_size=8, num_workers=1, worker_init_fn=warm)
    length = shared_length(loader)
    model = DistributedDataParallel(nn.Linear(9, 9))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        for (batch,) in itertools.islice(loader, length):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            meter.add(len(batch))
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
