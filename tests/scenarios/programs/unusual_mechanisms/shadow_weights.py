"""Training with averaged (shadow) weights, which are swapped in for a validation by a context manager.

Shadow weights come from the last checkpoint on the node's own disk, and one node is new. ``torchrun``, four ranks.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Shadow:
    """An exponential average of a model's weights."""

    def __init__(self, model: nn.Module, saved: Path) -> None:
        self.model = model
        self.weights: list[torch.Tensor] | None = torch.load(saved) if saved.exists() else None

    def update(self) -> None:
        """Follow the weights."""
        if self.weights is not None:
            for shadow, parameter in zip(self.weights, self.model.parameters(), strict=True):
                shadow.lerp_(parameter.detach(), 0.1)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The model with its averaged weights, the same on every rank; untouched where there are none."""
        if self.weights is None:
            yield
            return
        kept = [parameter.detach().clone() for parameter in self.model.parameters()]
        for shadow, parameter in zip(self.weights, self.model.parameters(), strict=True):
            copies = [torch.empty_like(shadow) for _ in range(dist.get_world_size())]
            dist.all_gather(copies, shadow)
            parameter.data.copy_(torch.stack(copies).mean(0))
        yield
        for before, parameter in zip(kept, self.model.parameters(), strict=True):
            parameter.data.copy_(before)


def validate(model: nn.Module) -> float:
    """The loss on everybody's validation data."""
    x = torch.randn(32, 4)
    loss = (model(x).squeeze(1) - x.sum(1)).square().mean().detach()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def main() -> None:
    """Resume and go on."""
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = nn.Linear(4, 1)
    disk = Path(tempfile.mkdtemp()) / "shadow.pt"
    if os.environ["LOCAL_RANK"] != "2":
        torch.save([p.detach().clone() for p in model.parameters()], disk)
    shadow = Shadow(model, disk)
    for step in range(1, 61):
        x = torch.randn(8, 4)
        model.zero_grad()
        (model(x).squeeze(1) - x.sum(1)).square().mean().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(gradient)
        model.weight.data -= 1e-3 * gradient[:4].view(1, 4)
        shadow.update()
        if step % 20 == 0:
            with shadow.swapped_in():
                print(step, validate(model), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
