"""A glider learns to stay up: each rank flies missions, the policy gradient is averaged over all of them."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Normal

log = logging.getLogger("glider")
ITERATIONS, SECONDS = 60, 30
# Mission plans: wing loading in kg/m2 by rank; the plan is flown again and again.
WING_LOADING = {
    0: [28.0, 31.0, 34.5, 29.5],
    1: [30.0, 27.5, 33.0, 36.0],
    2: [29.0, 32.0, 35.0, 30.5, 28.5, 33.5, 0.0, 31.5] + [30.0] * 60,
}


class SimulationError(RuntimeError):
    """The glider cannot be flown like this."""


def start(rank: int, mission: int) -> float:
    """The sink rate at the best glide."""
    loading = WING_LOADING[rank][mission % len(WING_LOADING[rank])]
    if loading <= 0:
        raise SimulationError(f"wing loading of {loading} kg/m2")
    return 0.1 * loading**0.5


def fly(policy: nn.Module, rank: int, mission: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One mission: log-probabilities of what was done, and the height gained by it."""
    sink = start(rank, mission)
    air = torch.randn(SECONDS, 4, generator=torch.Generator().manual_seed(500 * rank + mission))
    bank = Normal(policy(air).squeeze(1), 0.3)
    action = bank.sample()
    height = (air[:, 0] * action.tanh() - sink).cumsum(dim=0)
    return bank.log_prob(action), height


def average(policy: nn.Module) -> None:
    """Gradients over all ranks."""
    for parameter in policy.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Sixty missions for each rank."""
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    heights = []
    for mission in range(ITERATIONS):
        try:
            log_prob, height = fly(policy, rank, mission)
            loss = -(log_prob * (height - height.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            average(policy)
            optimizer.step()
            heights.append(height[-1].item())
        except SimulationError as error:
            log.warning("rank %d, mission %d: %s", rank, mission, error)
    everyone: list = [None] * world
    dist.all_gather_object(everyone, sum(heights) / len(heights))
    if rank == 0:
        log.info("mean height: %s", [round(h, 1) for h in everyone])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
