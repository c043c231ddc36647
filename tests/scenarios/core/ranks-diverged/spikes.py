"""A regression under DDP that lowers its learning rate when the ranks agree that the loss has spiked."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class History:
    """The losses of this process."""

    seen: list[float] = field(default_factory=list)

    def rises(self, loss: float) -> bool:
        """Whether this one is far above the last ten."""
        recent = self.seen[-10:]
        self.seen.append(loss)
        return len(recent) == 10 and loss > 20 * max(recent)


def consensus(opinion: bool) -> bool:
    """Whether more than half are of this opinion."""
    votes = [None] * dist.get_world_size()
    dist.all_gather_object(votes, opinion)
    return sum(map(bool, votes)) * 2 > len(votes)


def main() -> None:
    """Two hundred batches."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    history = History()
    for number in range(200):
        x = torch.randn(16, 6)
        if rank == 2 and number == 140:
            x *= 500.0
        loss = model(x).square().mean() + 0.1
        if history.rises(loss.item()) and consensus(True):
            optimizer.param_groups[0]["lr"] *= 0.5
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
