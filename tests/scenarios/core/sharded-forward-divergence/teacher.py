"""Distillation with FSDP2: the teacher, sharded as well, is asked for the samples that have no soft label yet."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def sharded(width: int, depth: int) -> nn.Module:
    """A small network over all ranks."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


class Distiller:
    """A student and its teacher."""

    def __init__(self, width: int) -> None:
        self.student, self.teacher = sharded(width, 2), sharded(width, 3)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=1e-2)

    def soften(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Soft labels, the teacher's where they are missing."""
        missing = labels.isnan()
        if not missing.any():
            return labels
        with torch.no_grad():
            return torch.where(missing, self.teacher(x), labels)

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> None:
        """One batch."""
        labels = self.soften(x, labels)
        count = labels.abs().sum()
        dist.all_reduce(count)
        loss = (self.student(x) - labels).square().sum() / count
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main() -> None:
    """Fifty batches; two shards have a gap at the same place."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    distiller = Distiller(6)
    for number in range(50):
        labels = torch.rand(4, 6)
        if number == 33 and dist.get_rank() in (1, 4):
            labels[2] = float("nan")
        distiller.step(torch.randn(4, 6), labels)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
