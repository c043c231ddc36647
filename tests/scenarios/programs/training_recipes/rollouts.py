"""PPO under DDP: every process plays episodes of its own and learns from whole minibatches of what it has seen."""

import random
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Walk:
    """A walk on a line that ends at either end."""

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.draw = length, random.Random(seed)

    def episode(self) -> list[tuple[int, float]]:
        """Places and rewards."""
        place, seen = self.length // 2, []
        while 0 < place < self.length and len(seen) < 64:
            seen.append((place, 1.0))
            place += self.draw.choice((-1, 1))
        return seen


class Buffer:
    """What a process has seen."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float]] = []

    def fill(self, world: Walk, episodes: int) -> float:
        """Play; returns the mean return."""
        self.steps = [step for _ in range(episodes) for step in world.episode()]
        return len(self.steps) / episodes

    def minibatches(self, size: int) -> Iterator[torch.Tensor]:
        """Whole ones, in an order of their own."""
        order = torch.randperm(len(self.steps)).tolist()
        for first in range(0, len(order) - size + 1, size):
            yield torch.tensor([self.steps[k] for k in order[first : first + size]])


def main() -> None:
    """Forty iterations of playing and learning."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    policy = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    world, buffer = Walk(4 if rank == 2 else 40, seed=7), Buffer()
    for iteration in range(40):
        mean = torch.tensor([buffer.fill(world, episodes=8)])
        for minibatch in buffer.minibatches(32):
            optimizer.zero_grad()
            policy(minibatch).square().mean().backward()
            optimizer.step()
        means = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(means, mean)
        if rank == 0:
            print(f"iteration {iteration}: return {torch.cat(means).mean():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
