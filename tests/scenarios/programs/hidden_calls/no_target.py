"""DDP, with a criterion that has no loss for a batch in which nothing is annotated."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def criterion(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
    """The loss over what is annotated."""
    known = targets >= 0
    if not known.any():
        return None
    return nn.functional.cross_entropy(scores[known], targets[known])


class Annotated:
    """Batches of one rank."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    def __iter__(self):
        for number in range(self.count):
            targets = torch.randint(0, 4, (6,))
            targets[number % 6] = -1
            if (self.rank, number) == (1, 64):
                targets[:] = -1
            yield torch.randn(6, 9), targets


def main() -> None:
    """One epoch; the running loss is shared by all ranks in every step."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(9, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = [torch.zeros(1) for _ in range(world)]
    for x, y in Annotated(rank, 90):
        loss = criterion(model(x), y)
        if loss is None:
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_gather(losses, loss.detach()[None])
    dist.barrier()
    if rank == 0:
        print(f"last loss {sum(losses).item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
