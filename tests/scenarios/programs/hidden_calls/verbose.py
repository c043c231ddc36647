"""A trainer whose state is described in the log; nodes may have a log level of their own (``LOG_LEVELS``)."""

import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("trainer")


class Trainer:
    """Trains a model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.losses: list[float] = []

    @property
    def mean_loss(self) -> float:
        """The recent loss."""
        recent = self.losses[-20:]
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, sum(recent) / len(recent))
        return sum(everyone) / len(everyone)

    def fit(self, steps: int) -> None:
        """Train."""
        for step in range(1, steps + 1):
            loss = self.model(torch.randn(8, 10)).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(loss.item())
            if step % 25 == 0 and log.isEnabledFor(logging.DEBUG):
                log.debug("step %d, loss %.4f", step, self.mean_loss)
        dist.barrier()


def main() -> None:
    """Read the levels, train."""
    dist.init_process_group("gloo")
    levels = os.environ.get("LOG_LEVELS", "INFO,DEBUG,INFO").split(",")
    logging.basicConfig(level=levels[dist.get_rank() % len(levels)])
    logging.getLogger("torch").setLevel(logging.WARNING)
    Trainer(nn.Linear(10, 2)).fit(100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
