"""One-step-off policy training: while the next rollouts are scored, the weights of the last step are spread. All on one event loop."""

import asyncio
import time

import torch
import torch.distributed as dist
from torch import nn


class RolloutWorker:
    def __init__(self, rank):
        self.rank, self.generator = rank, torch.Generator().manual_seed(rank)

    async def rollout(self, policy, step):
        """Longer episodes take longer; the environment answers by itself."""
        length = 4 + (step * (self.rank + 1)) % 9
        await asyncio.sleep(0.02 * length)
        observations = torch.randn(length, 12, generator=self.generator)
        with torch.no_grad():
            return observations, policy(observations).argmax(-1)


class Learner:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)

    def spread_weights(self):
        for p in self.policy.parameters():
            dist.all_reduce(p.data)
            p.data /= self.world

    def share_returns(self, value):
        values = [torch.zeros(1) for _ in range(self.world)]
        dist.all_gather(values, torch.tensor([value]))
        return torch.cat(values).mean().item()

    async def publish(self, step):
        await asyncio.sleep(0.05)
        await asyncio.to_thread(self.spread_weights)

    async def report(self, observations, step):
        delay = 0.25 if len(observations) <= 11 else 0.0  # short episodes are scored by the slow verifier
        await asyncio.sleep(delay)
        return await asyncio.to_thread(self.share_returns, observations.mean().item())

    def update(self, observations, actions):
        loss = nn.functional.cross_entropy(self.policy(observations), actions)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


async def run(steps):
    rank, world = dist.get_rank(), dist.get_world_size()
    learner, worker = Learner(rank, world), RolloutWorker(rank)
    observations, actions = await worker.rollout(learner.policy, 0)
    for step in range(1, steps):
        learner.update(observations, actions)
        _, mean = await asyncio.gather(learner.publish(step), learner.report(observations, step))
        observations, actions = await worker.rollout(learner.policy, step)
        if rank == 0:
            print(f"step {step}: mean return {mean:.3f}", flush=True)
        time.sleep(0.6)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(run(40))
    dist.destroy_process_group()
