"""Reads labels from a service that restarts now and then: asked again after 1, 2, 4 seconds, it answers."""

import functools
import random
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Unavailable(ConnectionError):
    pass


def retry(attempts: int, first: float) -> Callable:
    """Waits twice as long each time, with a little jitter so that not everybody comes at once."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            pause = first
            for attempt in range(1, attempts + 1):
                try:
                    return function(*args, **kwargs)
                except Unavailable as error:
                    if attempt == attempts:
                        raise
                    print(f"{function.__name__}: {error}, again in {pause:.0f} s", flush=True)
                    time.sleep(pause + random.random() * 0.1)
                    pause *= 2
            raise AssertionError

        return wrapper

    return decorate


class LabelService:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.restarting = 3 if rank == 1 else 0

    @retry(attempts=5, first=1.5)
    def labels(self, step: int, x: torch.Tensor) -> torch.Tensor:
        if step == 60 and self.restarting:
            self.restarting -= 1
            raise Unavailable("503")
        return (x.sum(1) > 0).float()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    service = LabelService(rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    for step in range(120):
        x = torch.randn(16, 10, generator=generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), service.labels(step, x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
