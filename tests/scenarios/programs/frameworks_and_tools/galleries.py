"""DDP over galleries of pictures: each process takes every second gallery, and all of its pictures."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GALLERIES = {
    "birds": 34,
    "boats": 28,
    "cats": 41,
    "clouds": 17,
    "coins": 22,
    "doors": 30,
    "faces": 12,
    "flags": 25,
}


class Trainer:
    """Model and optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(27, 16), nn.ReLU(), nn.Linear(16, 2))
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def epoch(self, pictures: list[torch.Tensor], size: int) -> float:
        """Once over all of them."""
        total = 0.0
        for first in range(0, len(pictures), size):
            batch = torch.stack(pictures[first : first + size])
            self.optimizer.zero_grad()
            loss = self.model(batch).square().mean()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(batch)
        return total / len(pictures)


def main() -> None:
    """Three epochs, then the means are compared."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = sorted(GALLERIES)[rank::world]
    pictures = [torch.randn(27) for name in mine for _ in range(GALLERIES[name])]
    trainer = Trainer()
    for epoch in range(3):
        mean = trainer.epoch(pictures, size=8)
        means: list[float | None] = [None] * world
        dist.all_gather_object(means, mean)
        if rank == 0:
            print(epoch, means, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
