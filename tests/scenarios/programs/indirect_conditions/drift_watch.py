"""DDP training of a forecaster; a watch over the drift of its residuals writes a report where they move."""

from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DriftWatch:
    """Compares the last residuals with those before them."""

    def __init__(self, window: int = 8) -> None:
        self.recent: deque[float] = deque(maxlen=window)
        self.baseline: deque[float] = deque(maxlen=4 * window)

    def update(self, step: int, residual: float) -> None:
        """Take a residual in, and report."""

        def shifted() -> float:
            if len(self.recent) < self.recent.maxlen or not self.baseline:
                return 0.0
            old = sum(self.baseline) / len(self.baseline)
            return abs(sum(self.recent) / len(self.recent) - old) / (old + 1e-6)

        def report() -> str | None:
            amount = shifted()
            if amount < 3.0:
                return None
            amounts = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(amounts, torch.tensor([amount]))
            return f"step {step}: drift {[round(a.item(), 2) for a in amounts]}"

        if len(self.recent) == self.recent.maxlen:
            self.baseline.append(self.recent[0])
        self.recent.append(residual)
        line = report()
        if line:
            print(line, flush=True)


def season(rank: int, step: int) -> torch.Tensor:
    """A batch of the rank's region; one region has a cold spell."""
    values = torch.randn(16, 6) * 0.1 + 1.0
    return values * 40.0 if rank == 2 and 30 <= step < 45 else values


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    watch = DriftWatch()
    for step in range(80):
        values = season(rank, step)
        residual = model(values[:, :5]).squeeze(1) - values[:, 5]
        optimizer.zero_grad()
        residual.square().mean().backward()
        optimizer.step()
        watch.update(step, residual.detach().abs().mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
