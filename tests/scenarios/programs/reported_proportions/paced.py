"""DDP: the first rank slows down a little when the machine is hot, by the C library's own clock."""

import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LIBRARY = ctypes.PyDLL(None)
PAUSE_US = 250_000


def temperature(step: int) -> float:
    """In degrees; what a sensor would tell."""
    return 60.0 + 0.25 * step


class Pace:
    """A pause after a step that was too hot."""

    def __init__(self, limit: float) -> None:
        self.limit, self.pauses = limit, 0

    def after(self, step: int) -> None:
        """Called by the first rank."""
        if temperature(step) > self.limit:
            self.pauses += 1
            LIBRARY.sleep(PAUSE_US)


def main() -> None:
    """Two hundred steps."""
    dist.init_process_group("gloo")
    pace = Pace(limit=85.0) if dist.get_rank() == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(200):
        loss = model(torch.randn(8, 6)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pace:
            pace.after(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
