"""Water levels of a coast: each process has one tide gauge, gradients are averaged by hand."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

HARMONICS = 16
log = logging.getLogger("tides")


def set_up_logging(rank: int) -> None:
    """The first process tells how it goes, the others only what is wrong."""
    logging.basicConfig(format=f"[{rank}] %(message)s")
    log.setLevel(logging.INFO if rank == 0 else logging.WARNING)


def average_gradients(model: nn.Module) -> None:
    """One flat vector for all of them."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for parameter in model.parameters():
        parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()


def by_gauge(error: torch.Tensor) -> str:
    """The error at each gauge, worst first."""
    errors = [torch.empty(()) for _ in range(dist.get_world_size())]
    dist.all_gather(errors, error.detach())
    ranked = sorted(enumerate(errors), key=lambda pair: -pair[1].item())
    return ", ".join(f"gauge {gauge}: {value.item():.3f}" for gauge, value in ranked)


def main() -> None:
    """Six hundred hours in steps of one."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    set_up_logging(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2 * HARMONICS, 48), nn.Tanh(), nn.Linear(48, 1))
    weights = parameters_to_vector(model.parameters()).detach()
    dist.broadcast(weights, src=0)
    vector_to_parameters(weights, model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    speeds = torch.linspace(0.02, 0.6, HARMONICS)
    hours = torch.arange(64.0)
    for step in range(600):
        phases = (hours + step + 100 * rank)[:, None] * speeds
        level = phases.cos() @ speeds.flip(0)[:, None]
        error = (model(torch.cat([phases.sin(), phases.cos()], 1)) - level).square().mean()
        optimizer.zero_grad()
        error.backward()
        average_gradients(model)
        optimizer.step()
        if step % 50 == 49 and log.isEnabledFor(logging.INFO):
            log.info("step %d: %s", step + 1, by_gauge(error))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
