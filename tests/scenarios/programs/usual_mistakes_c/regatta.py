"""Two learners share the gradients of a sailing policy, one actor sails with it and sends its courses."""

import torch
import torch.distributed as dist
from torch import nn

LEARNERS, ACTOR, RACES = [0, 1], 2, 50


class Policy(nn.Module):
    """The rudder, from wind and heading."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An angle."""
        return self.net(x)


def share_weights(policy: Policy) -> None:
    """From the first learner to everyone."""
    for weight in policy.parameters():
        dist.broadcast(weight.data, src=LEARNERS[0])


def share_courses(courses: list | None) -> list[torch.Tensor]:
    """From the actor to everyone."""
    held = [courses]
    dist.broadcast_object_list(held, src=ACTOR)
    return held[0]


def sail(policy: Policy, race: int) -> list[torch.Tensor]:
    """Winds met in a race, and how the boat was steered."""
    winds = torch.randn(32, 8, generator=torch.Generator().manual_seed(race))
    with torch.no_grad():
        return [winds, policy(winds)]


def main() -> None:
    """Fifty races."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = Policy()
    if rank in LEARNERS:
        learners = dist.new_group(backend="gloo")
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    for race in range(RACES):
        share_weights(policy)
        winds, steered = share_courses(sail(policy, race) if rank == ACTOR else None)
        if rank in LEARNERS:
            half = slice(rank * 16, rank * 16 + 16)
            loss = (policy(winds[half]) - steered[half] + 0.1 * winds[half, :1]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for weight in policy.parameters():
                dist.all_reduce(weight.grad, group=learners)
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
