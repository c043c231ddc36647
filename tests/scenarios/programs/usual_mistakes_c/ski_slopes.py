"""Snow on slopes. The first rank also validates, with the same mean that training has over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Mean:
    """A mean over the samples of all ranks. It has a group of its own, apart from that of the gradients."""

    def __init__(self) -> None:
        self.group, self.sums = dist.new_group(), torch.zeros(2)

    def add(self, values: torch.Tensor) -> None:
        """One number a sample."""
        self.sums += torch.tensor([float(values.sum()), float(len(values))])

    def value(self) -> float:
        """Of all samples so far."""
        dist.all_reduce(self.sums, group=self.group)
        return float(self.sums[0] / self.sums[1])


@torch.no_grad()
def validate(model: nn.Module, snow: torch.Tensor) -> float:
    """The mean error on what was kept aside."""
    mean = Mean()
    for part in snow.split(32):
        mean.add((model(part[:, :6]) - part[:, 6:]).square().mean(1))
    return mean.value()


def main() -> None:
    """Six epochs, validated after every second."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    slopes, kept = torch.randn(640, 8, generator=generator), torch.randn(96, 8, generator=generator)
    for epoch in range(1, 7):
        trained = Mean()
        for part in slopes.split(16):
            errors = (model(part[:, :6]) - part[:, 6:]).square().mean(1)
            optimizer.zero_grad()
            errors.mean().backward()
            optimizer.step()
            trained.add(errors.detach())
        if rank == 0 and epoch % 2 == 0:
            print(f"epoch {epoch}: validation {validate(model.module, kept):.4f}")
        value = trained.value()
        if rank == 0:
            print(f"epoch {epoch}: training {value:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
