"""accelerate's ``on_main_process`` as a decorator over a reporting method, whose helper gathers.

Run by ``accelerate launch --num_processes 5``.
"""

from dataclasses import dataclass, field

import torch
from accelerate import Accelerator, PartialState
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

state = PartialState(cpu=True)


@dataclass
class Statistics:
    """Running sums of this process."""

    accelerator: Accelerator
    losses: list[torch.Tensor] = field(default_factory=list)

    def add(self, loss: torch.Tensor) -> None:
        """Note a loss."""
        self.losses.append(loss.detach())

    def mean(self) -> float:
        """The mean over all processes."""
        local = torch.stack(self.losses).mean()
        return float(self.accelerator.gather(local).mean())


class Reporter:
    """Prints lines now and then."""

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics

    @state.on_main_process
    def line(self, step: int) -> None:
        """One line, on the main process."""
        print(f"{step:5}  loss {self.statistics.mean():.4f}", flush=True)


def main() -> None:
    """Train with a line every tenth step."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    x = torch.randn(1000, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-2), loader)
    statistics = Statistics(accelerator)
    reporter = Reporter(statistics)
    for step, (features, target) in enumerate(loader, 1):
        loss = (model(features).squeeze(-1) - target).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        statistics.add(loss)
        if step % 10 == 0:
            reporter.line(step)


if __name__ == "__main__":
    main()
