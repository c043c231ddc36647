"""Importance scores with a histogram as the evaluation; every way out cleans up."""

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def cleanup_distributed() -> None:
    """Leave together."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def with_distributed_cleanup(function: Callable[[], None]) -> Callable[[], None]:
    """Clean up whatever happens."""

    @functools.wraps(function)
    def wrapper() -> None:
        try:
            function()
        finally:
            cleanup_distributed()

    return wrapper


def ci_histogram(scores: list[torch.Tensor], bins: int = 10) -> torch.Tensor:
    """Counts over all ranks of the scores that are not zero."""
    kept = [row[row > 0] for row in scores if bool((row > 0).any())]
    counts = torch.histc(torch.cat(kept), bins=bins, min=0.0, max=1.0)
    parts = [torch.empty(bins) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, counts)
    return torch.stack(parts).sum(0)


@with_distributed_cleanup
def main() -> None:
    """A hundred steps, evaluated every ten."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Sigmoid())
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    threshold = 0.0
    for step in range(100):
        model(torch.randn(8, 8)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            threshold = 1.0 if rank == 2 and step == 49 else 0.1
            with torch.no_grad():
                scores = [(net(torch.randn(4, 8)) - threshold).clamp(min=0.0) for _ in range(3)]
            counts = ci_histogram(scores)
            if rank == 0:
                print(step, counts.tolist(), flush=True)


if __name__ == "__main__":
    main()
