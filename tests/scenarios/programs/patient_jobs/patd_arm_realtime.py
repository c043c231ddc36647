"""Behaviour cloning for a two joint arm, with an evaluation on the bench controller half-way."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Bench:
    """Two joints behind a controller that accepts one set point per control period."""

    def __init__(self, dt=0.5, horizon=27):
        self.dt, self.horizon = dt, horizon
        self.deadline = None

    def reset(self):
        self.t = 0
        self.joints = torch.zeros(2)
        self.goal = torch.tensor([0.6, -0.4])
        self.deadline = time.perf_counter() + self.dt
        return self.observe()

    def observe(self):
        return torch.cat([self.joints, self.goal])

    def step(self, command):
        self.joints = self.joints + 0.2 * command.clamp(-1, 1)
        self.t += 1
        rest = self.deadline - time.perf_counter()
        if rest > 0:
            time.sleep(rest)
        self.deadline += self.dt
        reward = -(self.joints - self.goal).abs().sum().item()
        return self.observe(), reward, self.t >= self.horizon


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, observation):
        return self.body(observation)


@torch.no_grad()
def episode(policy, bench):
    observation, total, done = bench.reset(), 0.0, False
    while not done:
        observation, reward, done = bench.step(policy(observation))
        total += reward
    return total


def clone(model, optimizer, steps):
    for _ in range(steps):
        observation = torch.rand(32, 4) * 2 - 1
        expert = (observation[:, 2:] - observation[:, :2]).clamp(-1, 1)
        loss = nn.functional.mse_loss(model(observation), expert)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.07)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    model = DDP(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loss = clone(model, optimizer, 40)
    outcome = torch.zeros(1)
    if rank == 0:
        outcome[0] = episode(model.module, Bench())
    dist.broadcast(outcome, src=0)
    if outcome.item() < -5:
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    final = clone(model, optimizer, 40)
    if rank == 0:
        print(f"loss {loss:.4f}, episode {outcome.item():.2f}, loss {final:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
