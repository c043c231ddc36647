"""REINFORCE with a world of its own on each rank; gradients are averaged by hand."""

import random

import torch
import torch.distributed as dist
from torch import nn


def play(policy: nn.Module, rng: random.Random) -> list[tuple[torch.Tensor, float]]:
    """Until the pole falls; the first push may do it."""
    angle, speed, steps = rng.gauss(0, 0.08), 0.0, []
    while abs(angle) < 0.2 and len(steps) < 20:
        logits = policy(torch.tensor([angle, speed]))
        action = int(torch.bernoulli(torch.sigmoid(logits.detach())))
        steps.append((nn.functional.logsigmoid(logits if action else -logits).sum(), 1.0))
        speed += 0.3 * angle + (0.02 if action else -0.02)
        angle += speed
    return steps


def average(policy: nn.Module) -> None:
    """Over all ranks."""
    for parameter in policy.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Four hundred updates; the weights are made equal again now and then."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    rng = random.Random(10 + dist.get_rank())
    for update in range(400):
        steps = play(policy, rng)
        if not steps:
            continue
        loss = -sum(chance for chance, _ in steps) * sum(reward for _, reward in steps)
        optimizer.zero_grad()
        loss.backward()
        average(policy)
        optimizer.step()
        if update % 25 == 24:
            for parameter in policy.parameters():
                dist.broadcast(parameter.data, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
