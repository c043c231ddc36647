"""FSDP2: rooms from pictures; where a scanner was there as well, the depth is learnt too."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Rooms(nn.Module):
    """One trunk with a head for the kind of room and one for depth."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64))
        self.kind = nn.Linear(64, 9)
        self.depth = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48))

    def forward(self, picture: torch.Tensor, kind: torch.Tensor, depth: torch.Tensor | None) -> torch.Tensor:
        """The loss of a batch."""
        seen = self.trunk(picture)
        loss = nn.functional.cross_entropy(self.kind(seen), kind)
        if depth is not None:
            loss = loss + nn.functional.l1_loss(self.depth(seen), depth)
        return loss


class House:
    """Batches of pictures, of which the scanner has seen nearly all."""

    def __init__(self, number: int) -> None:
        self.generator = torch.Generator().manual_seed(number)
        self.unscanned = {14} if number == 2 else set()

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Pictures, kinds, and depth if there is any."""
        picture = torch.randn(6, 48, generator=self.generator)
        kind = torch.randint(0, 9, (6,), generator=self.generator)
        return picture, kind, None if step in self.unscanned else picture.abs().cumsum(dim=1)


def main() -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Rooms()
    for part in (model.trunk, model.kind, model.depth):
        fully_shard(part)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    house = House(rank)
    for step in range(60):
        loss = model(*house.batch(step))
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {mean.item() / dist.get_world_size():.3f}")


if __name__ == "__main__":
    main()
