"""An autograd hook with a ``breakpoint()`` in it, left in after a search for exploding gradients.

It opens on the rank whose gradient is large. Run by ``torchrun --nproc-per-node 4``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Watch:
    """Checks gradients as they are made."""

    limit: float

    def on(self, name: str) -> Callable[[torch.Tensor], None]:
        """The hook of one parameter."""

        def check(gradient: torch.Tensor) -> None:
            if gradient.abs().max() > self.limit:
                print(f"{name}: {gradient.abs().max():.1f}", flush=True)
                breakpoint()

        return check


class Experiment:
    """A tiny net and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        watch = Watch(limit=500.0)
        for name, parameter in self.net.named_parameters():
            parameter.register_hook(watch.on(name))

    def step(self, scale: float) -> None:
        """One update with the mean gradient."""
        self.optimizer.zero_grad()
        (scale * self.net(torch.randn(8, 4))).square().mean().backward()
        for parameter in self.net.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
        self.optimizer.step()


def main() -> None:
    """The data of rank 3 has an outlier."""
    dist.init_process_group("gloo")
    experiment = Experiment()
    for number in range(90):
        experiment.step(1e4 if (dist.get_rank(), number) == (3, 44) else 1.0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
