"""An actor-learner ring: every rank hands its rollouts to the next one as objects, and then takes those of the one before.

Sending is blocking, and all send first. Run by ``torchrun --nproc-per-node 4``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Rollout:
    """What one episode gave."""

    reward: float
    actions: list[int] = field(default_factory=list)


class Actor:
    """Plays episodes."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def episodes(self, count: int) -> Iterator[Rollout]:
        """So many episodes."""
        for _ in range(count):
            actions = torch.randint(0, 4, (12,), generator=self.generator).tolist()
            yield Rollout(reward=sum(actions) / 12, actions=actions)


def pass_on(rollouts: list[Rollout]) -> list[Rollout]:
    """Give to the right, take from the left."""
    rank, world = dist.get_rank(), dist.get_world_size()
    box: list[list[Rollout] | None] = [None]
    dist.send_object_list([rollouts], dst=(rank + 1) % world)
    dist.recv_object_list(box, src=(rank - 1) % world)
    return box[0] or []


def learn(value: torch.Tensor, rollouts: list[Rollout]) -> None:
    """Average the mean rewards."""
    mean = torch.tensor([sum(r.reward for r in rollouts) / max(1, len(rollouts))])
    dist.all_reduce(mean)
    value += 0.1 * (mean / dist.get_world_size() - value)


def main() -> None:
    """Five rounds on own rollouts to warm up, then on the neighbour's."""
    dist.init_process_group("gloo")
    actor, value = Actor(dist.get_rank()), torch.zeros(1)
    for round_ in range(30):
        rollouts = list(actor.episodes(6))
        learn(value, rollouts if round_ < 5 else pass_on(rollouts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
