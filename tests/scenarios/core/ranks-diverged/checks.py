"""Health checks between the steps: each counts the ranks it fails on, and a rank reports whether any of its own failed."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

Check = Callable[[nn.Module], bool]


class Clinic:
    """Runs checks and keeps what all ranks said."""

    def __init__(self, checks: dict[str, Check]) -> None:
        self.checks = checks
        self.counts = dict.fromkeys(checks, 0)

    def _fails(self, name: str, model: nn.Module) -> bool:
        mine = self.checks[name](model)
        counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, torch.tensor([float(mine)]))
        self.counts[name] += int(sum(counts).item())
        return mine

    def visit(self, model: nn.Module) -> bool:
        """Whether something is wrong here."""
        return any(self._fails(name, model) for name in self.checks)


def exploding(model: nn.Module) -> bool:
    """Whether a gradient is large."""
    return max(p.grad.abs().max().item() for p in model.parameters()) > 1e3


def vanishing(model: nn.Module) -> bool:
    """Whether all gradients are tiny."""
    return all(p.grad.abs().max().item() < 1e-12 for p in model.parameters())


def main() -> None:
    """Sixty steps, a visit after each tenth."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    clinic = Clinic({"exploding": exploding, "vanishing": vanishing})
    for step in range(1, 61):
        model.zero_grad()
        scale = 1e6 if (rank, step) == (3, 40) else 1.0
        (model(torch.randn(4, 8)).square().mean() * scale).backward()
        if step % 10 == 0 and clinic.visit(model):
            print(f"rank {rank} is not well after {step} steps", flush=True)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.add_(parameter.grad.clamp(-1, 1), alpha=-1e-3 / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
