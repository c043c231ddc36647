"""Layer statistics of a pipeline-split model are aggregated by name; a stage without monitored layers has none.

Run by ``torchrun --nproc-per-node 4``.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class Monitor:
    """Hooks the modules of given types and keeps the norms of what leaves them."""

    def __init__(self, module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> None:
        self.norms: dict[str, list[float]] = defaultdict(list)
        for name, child in module.named_modules():
            if isinstance(child, kinds):
                child.register_forward_hook(self._watch(name))

    def _watch(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            self.norms[name].append(output.norm().item())

        return hook

    def aggregate(self) -> dict[str, float]:
        """Means over all stages. Takes every rank."""
        local = {name: sum(values) / len(values) for name, values in self.norms.items()}
        self.norms.clear()
        if not local:
            return {}
        everybody: list[dict[str, float] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, local)
        merged: dict[str, list[float]] = defaultdict(list)
        for part in everybody:
            for name, value in (part or {}).items():
                merged[name].append(value)
        return {name: sum(values) / len(values) for name, values in merged.items()}


def build_stage(rank: int) -> nn.Module:
    """The layers of one stage; stage 1 has room for the embedding's cache and no layer of its own."""
    if rank == 1:
        return nn.Sequential(nn.Identity(), nn.Flatten())
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))


def main() -> None:
    """Two hundred micro-steps, a report every fifty."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = build_stage(rank)
    monitor = Monitor(stage, (nn.Linear,))
    seen = torch.zeros(1)
    for step in range(1, 201):
        seen += stage(torch.randn(3, 6)).shape[0]
        if step % 50 == 0:
            summary = monitor.aggregate()
            total = seen.clone()
            dist.all_reduce(total)
            print(f"rank {rank} step {step}: {int(total)} samples, {summary}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
