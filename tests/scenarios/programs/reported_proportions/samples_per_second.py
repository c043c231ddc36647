"""DDP: a meter of samples a second, printed by a timer's signal."""

import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter:
    """Counts, in the last second and in all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.window: list[float] = []
        self.total = 0

    def add(self, samples: int) -> None:
        """Forgets what is older than a second."""
        with self.lock:
            now = time.monotonic()
            self.window.extend([now] * samples)
            self.window = [moment for moment in sorted(self.window) if moment > now - 1.0]
            self.total += samples

    def show(self, number: int, frame: object) -> None:
        """Called by the timer."""
        with self.lock:
            print(f"{len(self.window)} samples in the last second, {self.total} in all", flush=True)


def main() -> None:
    """Many steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    meter = Meter()
    if rank == 1:
        signal.signal(signal.SIGALRM, meter.show)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 0.2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _step in range(20000):
        loss = model(torch.randn(256, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.add(256)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
