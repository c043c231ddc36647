"""Rank 0 reads the configuration and tells the others, except that a rank may be given its own on the command line.

Hangs before the first step. Run by ``torchrun --nproc-per-node 4``.
"""

import os
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist


@dataclass
class Settings:
    """What a run is made of."""

    rate: float = 0.1
    steps: int = 30
    width: int = 3


def local_override() -> Settings | None:
    """Settings of this machine alone: a leftover of a debugging session on one of them."""
    return Settings(steps=30) if os.environ["LOCAL_RANK"] == "2" else None


def agree_on_settings() -> Settings:
    """One's own override, or what rank 0 says."""
    override = local_override()
    if override is not None:
        return override
    box = [asdict(Settings(rate=0.05))] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    return Settings(**box[0])


def prepare(settings: Settings) -> torch.Tensor:
    """Build the model where all have their settings."""
    dist.barrier()
    torch.manual_seed(0)
    return torch.randn(settings.width)


def main() -> None:
    """Train a little."""
    dist.init_process_group("gloo")
    settings = agree_on_settings()
    weight = prepare(settings)
    for _ in range(settings.steps):
        gradient = weight.clone()
        dist.all_reduce(gradient)
        weight -= settings.rate * gradient
    print(weight, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
