"""Training with accelerate in which a step has an outcome, and the loop does what that asks for."""

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn


@dataclass
class Fine:
    """Nothing to tell."""

    loss: float


@dataclass
class Spike:
    """The loss is far above the usual one."""

    loss: float
    usual: float


class Runner:
    """Model, optimizer, and what is usual."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
        self.model, self.optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-4))
        self.usual = 0.0

    def step(self, batch: torch.Tensor) -> Fine | Spike:
        """One step."""
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        value = loss.item()
        if self.usual and value > 50 * self.usual:
            return Spike(value, self.usual)
        self.usual = max(self.usual, value)
        return Fine(value)


def batch(rank: int, number: int) -> torch.Tensor:
    """Eight rows; a few of rank 1 were never normalized."""
    rows = torch.ones(8, 8) + 0.01 * number
    return rows * 120.0 if (rank, number) == (1, 36) else rows


def main() -> None:
    """Sixty steps."""
    accelerator = Accelerator(cpu=True)
    runner = Runner(accelerator)
    for number in range(60):
        match runner.step(batch(accelerator.process_index, number)):
            case Spike(loss=loss, usual=usual):
                losses = accelerator.gather(torch.tensor([loss]))
                accelerator.print(f"{number}: {usual:.3f} before, now {losses.tolist()}")
            case Fine(loss=loss) if number % 20 == 0:
                accelerator.print(f"{number}: {loss:.3f}")
            case _:
                pass
    accelerator.end_training()


if __name__ == "__main__":
    main()
