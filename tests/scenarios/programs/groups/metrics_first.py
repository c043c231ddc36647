"""Gradients and metrics have a process group each. A rank whose metric buffer is full flushes it before its gradients.

The buffers fill with the number of samples, which depends on the data, so that one rank comes to flush a step early.
"""

import os

import torch
import torch.distributed as dist
from torch import nn

CAPACITY = 200


class MetricBuffer:
    """Collects losses and averages them over all ranks once there are enough."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.losses: list[float] = []

    def full(self) -> bool:
        """Whether there is no room for another step."""
        return len(self.losses) >= CAPACITY

    def flush(self) -> float:
        """The mean over all ranks of what was collected."""
        total = torch.tensor([sum(self.losses), float(len(self.losses))])
        dist.all_reduce(total, group=self.group)
        self.losses.clear()
        return float(total[0] / total[1])


def reduce_gradients(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Average the gradients over the group."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= group.size()


def main() -> None:
    """Train on documents that are cut into different numbers of pieces."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    everyone = list(range(dist.get_world_size()))
    gradients, metrics = dist.new_group(everyone), dist.new_group(everyone)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    buffer = MetricBuffer(metrics)
    for step in range(60):
        pieces = 9 if (rank, step) == (1, 12) else 8
        inputs = torch.randn(pieces, 8)
        errors = (model(inputs) - inputs.mean(1, keepdim=True)).square()
        optimizer.zero_grad()
        errors.mean().backward()
        buffer.losses += errors.flatten().tolist()
        overdue = len(buffer.losses) > CAPACITY
        if overdue:
            print(f"step {step}: mean loss {buffer.flush():.3f}, before the update")
        reduce_gradients(model, gradients)
        optimizer.step()
        if not overdue and buffer.full():
            print(f"step {step}: mean loss {buffer.flush():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
