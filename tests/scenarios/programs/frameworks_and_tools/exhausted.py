"""FSDP2 in the manner of torchtitan: between steps of training a validation over all that there is."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, LENGTH = 16, 8


class Packed:
    """Documents of a rank, packed into rows of one length; what does not fill a row is left."""

    def __init__(self, documents: int, rank: int, world: int) -> None:
        lengths = [3 + 4 * number * number % 9 for number in range(documents)]
        self.lengths = lengths[rank::world]

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Rows."""
        left = 0
        for length in self.lengths:
            left += length
            while left >= LENGTH:
                left -= LENGTH
                yield torch.randn(LENGTH, WIDTH)


class Validator:
    """Runs through everything and says what it cost."""

    def __init__(self, model: nn.Module, data: Packed) -> None:
        self.model, self.data = model, data

    @torch.no_grad()
    def run(self) -> float:
        """Mean loss of this rank's rows."""
        losses = [self.model(row).square().mean() for row in self.data]
        return torch.stack(losses).mean().item()


def main() -> None:
    """Fifty steps."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    validator = Validator(model, Packed(62, rank, world))
    for step in range(1, 51):
        loss = (model(torch.randn(LENGTH, WIDTH)) - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"{step}: {validator.run():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
