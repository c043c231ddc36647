"""Meters are synchronized in the order in which a rank first met their names in its data. Three ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DOMAINS = (("web", "code", "web", "books"), ("web", "web", "code", "books"), ("code", "books", "web", "code"))


class Mean:
    """A mean: sums are added up."""

    def __init__(self) -> None:
        self.sums = torch.zeros(2)

    def update(self, values: torch.Tensor) -> None:
        """Add a batch."""
        self.sums += torch.tensor([values.sum().item(), len(values)])

    def sync(self) -> float:
        """The mean over all ranks."""
        total = self.sums.clone()
        dist.all_reduce(total)
        return (total[0] / total[1].clamp(min=1)).item()


class Median:
    """A median: the last values of all ranks are needed."""

    def __init__(self) -> None:
        self.last = torch.zeros(4)

    def update(self, values: torch.Tensor) -> None:
        """Remember a batch."""
        self.last = values.clone()

    def sync(self) -> float:
        """The median over all ranks."""
        parts = [torch.zeros(4) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.last)
        return torch.cat(parts).median().item()


KINDS = {"web": Mean, "code": Median, "books": Mean}


def main() -> None:
    """Twenty steps; the meters are read every eighth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    meters: dict[str, Mean | Median] = {}
    for step in range(1, 21):
        domain = DOMAINS[rank][step % 4]
        losses = (model(torch.randn(4, 8)) - 1).square().squeeze(1)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        if domain not in meters:
            meters[domain] = KINDS[domain]()
        meters[domain].update(losses.detach())
        if step % 8 == 0:
            for name, meter in meters.items():
                value = meter.sync()
                print(f"[{rank}] step {step}: {name} {value:.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
