"""Agents with tools: episodes last as long as the environment takes, then all ranks learn from all episodes."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn


class Environment:
    """A browser, more or less; some pages are slow."""

    def __init__(self, rank):
        self.random = random.Random(rank)

    def episode(self, policy, slow):
        total = 0.0
        for turn in range(18 if slow else 5):
            observation = torch.randn(12)
            action = policy(observation).argmax().item()
            time.sleep(0.6)
            total += self.random.random() * (action + 1)
        return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))
    environment = Environment(rank)
    for iteration in range(3):
        reward = environment.episode(policy, slow=iteration % world == rank)
        rewards = [None] * world
        dist.all_gather_object(rewards, reward)
        for _ in range(5):
            loss = policy(torch.randn(8, 12)).logsumexp(-1).mean() * sum(rewards) / world
            loss.backward()
            for p in policy.parameters():
                dist.all_reduce(p.grad)
                p.data.add_(p.grad, alpha=-1e-3)
                p.grad = None
        if rank == 0:
            print(f"iteration {iteration}: {[round(r, 1) for r in rewards]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
