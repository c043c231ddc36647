"""Progress is told every so often by the clock; how often is a matter of each node's settings."""

import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Settings:
    """What a node's file says."""

    tell_every_s: float = 3600.0
    rate: float = 1e-2

    @classmethod
    def of_node(cls, node: int) -> "Settings":
        """Those of a node; one has been used for debugging."""
        return cls(tell_every_s=1.0) if node == 3 else cls()


@dataclass
class Progress:
    """Tells how far we are."""

    settings: Settings
    last: float = field(default_factory=time.monotonic)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if time.monotonic() - self.last > self.settings.tell_every_s:
            counts = [None] * dist.get_world_size()
            dist.all_gather_object(counts, os.getpid())
            self.last = time.monotonic()


def main() -> None:
    """Steps of five milliseconds."""
    dist.init_process_group("gloo")
    settings = Settings.of_node(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(5, 5))
    progress = Progress(settings)
    for _ in range(2000):
        with progress:
            model(torch.randn(2, 5)).square().mean().backward()
            model.zero_grad()
            time.sleep(0.005)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
