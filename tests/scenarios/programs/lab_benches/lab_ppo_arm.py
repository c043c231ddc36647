"""PPO for a reaching arm, decentralized: every rank has its own arm, gradients are averaged."""

import math
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


@dataclass
class Hyper:
    iterations: int = 300
    horizon: int = 64
    update_epochs: int = 6
    minibatches: int = 2
    clip: float = 0.2
    target_kl: float = 0.01
    lr: float = 3e-4


@dataclass
class Arm:
    """A planar arm with a payload, whose joint encoders report in units of the payload's inertia."""

    seed: int
    payload: float = 1.0
    generator: torch.Generator = field(init=False)

    def __post_init__(self):
        self.generator = torch.Generator().manual_seed(self.seed)

    def observe(self, n):
        return self.payload * 0.3 * torch.randn(n, 8, generator=self.generator)

    def reward(self, observation, action):
        goal = torch.tanh(observation[:, :2] / self.payload)
        return -(action - goal).pow(2).sum(-1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
        self.log_std = nn.Parameter(torch.full((2,), -1.0))

    def log_prob(self, observation, action):
        z = (action - self.body(observation)) / self.log_std.exp()
        return (-0.5 * z.pow(2) - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    @torch.no_grad()
    def act(self, observation, generator):
        mean = self.body(observation)
        return mean + self.log_std.exp() * torch.randn(mean.shape, generator=generator)


def average(model):
    flat = torch.cat([p.grad.view(-1) for p in model.parameters()]) / dist.get_world_size()
    dist.all_reduce(flat)
    for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
        p.grad.copy_(g.view_as(p))


def update(policy, optimizer, hyper, observations, actions, old, advantages):
    """Returns how often it went over the rollout."""
    for epoch in range(hyper.update_epochs):
        for part in torch.arange(len(observations)).chunk(hyper.minibatches):
            ratio = (policy.log_prob(observations[part], actions[part]) - old[part]).exp()
            surrogate = torch.min(ratio * advantages[part], ratio.clamp(1 - hyper.clip, 1 + hyper.clip) * advantages[part])
            optimizer.zero_grad()
            (-surrogate.mean()).backward()
            average(policy)
            optimizer.step()
        with torch.no_grad():
            log_ratio = policy.log_prob(observations, actions) - old
            kl = (log_ratio.exp() - 1 - log_ratio).mean().item()
        if kl > 1.5 * hyper.target_kl:
            break
    return epoch + 1, kl


def main():
    hyper = Hyper()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=hyper.lr)
    arm = Arm(seed=rank)
    for iteration in range(hyper.iterations):
        if iteration == 12:
            arm.payload = 20.0 if rank == 2 else 1.1
        observations = arm.observe(hyper.horizon)
        actions = policy.act(observations, arm.generator)
        rewards = arm.reward(observations, actions)
        time.sleep(0.15)
        with torch.no_grad():
            old = policy.log_prob(observations, actions)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        passes, kl = update(policy, optimizer, hyper, observations, actions, old, advantages)
        reports = [None] * world
        dist.all_gather_object(reports, (rewards.mean().item(), passes, kl))
        if rank == 0:
            print(iteration, " ".join(f"{r:.2f}/{p}/{k:.4f}" for r, p, k in reports), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
