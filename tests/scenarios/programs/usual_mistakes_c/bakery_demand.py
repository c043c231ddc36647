"""How many loaves a bakery sells: DDP on weather and weekday, with a running loss in the log."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("bakery")


class RunningLoss:
    """The mean loss since it was last asked for, over all shops."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float) -> None:
        """One step's loss."""
        self.total += value
        self.count += 1

    @property
    def average(self) -> float:
        """The mean, and begin again."""
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, (self.total, self.count))
        self.total, self.count = 0.0, 0
        return sum(total for total, _ in parts) / max(sum(count for _, count in parts), 1)


def main() -> None:
    """Four hundred steps, a line in the log every fifty."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    running = RunningLoss()
    for step in range(1, 401):
        days = torch.randn(32, 9, generator=generator)
        loaves = days[:, :1] * 3 + days[:, 1:2].clamp(min=0)
        loss = nn.functional.mse_loss(model(days), loaves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running.add(loss.item())
        if rank == 0 and step % 50 == 0:
            log.info("step %d: loss %.4f", step, running.average)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
