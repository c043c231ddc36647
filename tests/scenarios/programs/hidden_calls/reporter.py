"""Errors are kept by torchmetrics on every rank, and shown by the one that has the terminal."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanSquaredError, MetricCollection, PearsonCorrCoef

TERMINAL = 2


class Session:
    """A training session."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(nn.Linear(9, 1))
        self.metrics = MetricCollection({"mse": MeanSquaredError(), "r": PearsonCorrCoef()})

    def save_checkpoint(self, step: int) -> str:
        """The name of a checkpoint; this one keeps none."""
        return f"checkpoint-{step}"

    def show(self, step: int) -> None:
        """To whoever looks."""
        values = self.metrics.compute()
        print(step, {key: round(float(value), 3) for key, value in values.items()}, flush=True)

    def run(self, steps: int) -> None:
        """Train."""
        for step in range(1, steps + 1):
            x = torch.randn(8, 9)
            prediction = self.model(x).squeeze(-1)
            (prediction - x.sum(1)).square().mean().backward()
            self.model.zero_grad()
            self.metrics.update(prediction.detach(), x.sum(1))
            if step % 40 == 0:
                self.save_checkpoint(step)
                if self.rank == TERMINAL:
                    self.show(step)


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    Session().run(100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
