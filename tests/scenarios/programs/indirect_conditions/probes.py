"""A bag of probes, switched on per machine in its settings, looks at the weights after some of the steps."""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

Probe = Callable[[nn.Module, int], None]
PROBES: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    """Enter a probe under its name."""

    def enter(function: Probe) -> Probe:
        PROBES[name] = function
        return function

    return enter


@probe("sparsity")
def sparsity(model: nn.Module, step: int) -> None:
    """How many weights are next to nothing."""
    share = torch.cat([p.detach().abs().flatten() < 1e-3 for p in model.parameters()]).float().mean()
    print(f"{step}: {share:.4f}", flush=True)


@probe("agreement")
def agreement(model: nn.Module, step: int) -> None:
    """Whether the replicas still agree."""
    checks: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(checks, [p.sum().item() for p in model.parameters()])
    print(f"{step}: {len({str(check) for check in checks})} kinds of weights", flush=True)


def settings(rank: int) -> dict[int, str]:
    """Which probe is due at which step; the machine of ranks 1 and 3 was set up by somebody else."""
    text = "20=sparsity" if rank % 2 == 0 else "20=sparsity,42=agreement"
    text = os.environ.get("PROBE_PLAN", text)
    return {int(step): name for step, name in (item.split("=") for item in text.split(","))}


def reduce_gradients(model: nn.Module) -> None:
    """Average over the ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    plan = settings(dist.get_rank())
    for step in range(60):
        optimizer.zero_grad()
        model(torch.randn(12, 10)).square().mean().backward()
        reduce_gradients(model)
        optimizer.step()
        PROBES.get(plan.get(step, ""), lambda *_: None)(model, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
