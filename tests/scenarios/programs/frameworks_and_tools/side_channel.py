"""DDP on five ranks; texts are exchanged over a group of their own, so that they do not disturb the gradients."""

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@functools.cache
def side_channel() -> dist.ProcessGroup:
    """For objects."""
    return dist.new_group(backend="gloo")


class Oddities:
    """Rows that look odd, collected until there are ten."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def look(self, rows: torch.Tensor, limit: float) -> None:
        """Remember odd ones, and tell everybody."""
        self.found += [f"{row.abs().max().item():.2f}" for row in rows if row.abs().max() > limit]
        if len(self.found) >= 10:
            lists: list[list[str] | None] = [None] * dist.get_world_size(side_channel())
            dist.all_gather_object(lists, self.found, group=side_channel())
            self.found = []


def main() -> None:
    """Ninety steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    oddities = Oddities()
    for step in range(90):
        rows = torch.sin(torch.arange(20.0) * (step + 1)).view(5, 4)
        if step % 3 == 0 and rank in {1, 4}:
            rows[2] *= 3
        loss = model(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        oddities.look(rows, limit=1.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
