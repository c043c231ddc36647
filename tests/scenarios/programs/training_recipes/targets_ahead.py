"""A pipeline by hand in three stages: the first one reads the data, so it sends the targets to the last one."""

import torch
import torch.distributed as dist
from torch import nn

BATCH, WIDTH = 512, 256


class Stage:
    """One part of the model, and whom it has beside it."""

    def __init__(self) -> None:
        self.place, self.last = dist.get_rank(), dist.get_world_size() - 1
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    def inputs(self) -> torch.Tensor:
        """What the stage before has made of the batch."""
        hidden = torch.empty(BATCH, WIDTH)
        dist.recv(hidden, src=self.place - 1)
        return hidden.requires_grad_()

    def step(self, x: torch.Tensor | None, y: torch.Tensor | None) -> float | None:
        """Forward and backward."""
        if y is not None:
            dist.send(y, dst=self.last)
        entered = x if x is not None else self.inputs()
        left = self.block(entered)
        if self.place < self.last:
            dist.send(left.detach(), dst=self.place + 1)
            gradient = torch.empty_like(left)
            dist.recv(gradient, src=self.place + 1)
            left.backward(gradient)
            loss = None
        else:
            targets = torch.empty(BATCH, WIDTH)
            dist.recv(targets, src=0)
            error = nn.functional.mse_loss(left, targets)
            error.backward()
            loss = error.item()
        if self.place > 0:
            dist.send(entered.grad, dst=self.place - 1)
        return loss


def main() -> None:
    """Forty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    stage = Stage()
    optimizer = torch.optim.SGD(stage.block.parameters(), lr=0.1)
    for step in range(40):
        reads = stage.place == 0
        loss = stage.step(torch.randn(BATCH, WIDTH) if reads else None, torch.randn(BATCH, WIDTH) if reads else None)
        optimizer.step()
        optimizer.zero_grad()
        if loss is not None:
            print(f"step {step}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
