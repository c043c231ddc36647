"""Gradients are averaged in one group, figures in another; the first rank brings its figures before it averages."""

import torch
import torch.distributed as dist
from torch import nn


class Figures:
    """Loss and accuracy since the last report."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.sums = group, torch.zeros(3)

    def add(self, loss: torch.Tensor, right: torch.Tensor) -> None:
        """One batch."""
        self.sums += torch.stack([loss.detach(), right.float().mean(), torch.ones(())])

    def report(self) -> None:
        """Of all ranks."""
        dist.all_reduce(self.sums, group=self.group)
        if dist.get_rank() == 0:
            print(f"loss {self.sums[0] / self.sums[2]:.4f}, right {self.sums[1] / self.sums[2]:.3f}")
        self.sums = torch.zeros(3)


def average(model: nn.Module, group: dist.ProcessGroup) -> None:
    """All gradients."""
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=group)
        p.grad /= dist.get_world_size(group)


def main() -> None:
    """Three hundred steps, figures every hundredth."""
    dist.init_process_group("gloo")
    training, reporting = dist.new_group(), dist.new_group()
    torch.manual_seed(dist.get_rank())
    model, figures = nn.Linear(16, 4), Figures(reporting)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 301):
        x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        figures.add(loss, logits.argmax(dim=1) == y)
        due = step % 100 == 0
        if due and dist.get_rank() == 0:
            figures.report()
            average(model, training)
        else:
            average(model, training)
            if due:
                figures.report()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
