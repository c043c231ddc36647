"""DAgger with a recovery expert; optimizer state sharded over the ranks."""
import math
import time
from collections import deque

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Arm:
    """Planar three-link arm. Observations are joint angles, rates and the goal."""

    def __init__(self, seed, speed):
        self.g = torch.Generator().manual_seed(seed)
        self.speed = speed
        self.reset()

    def reset(self):
        self.q = torch.zeros(16, 3)
        self.goal = torch.rand(16, 2, generator=self.g) * 2 - 1
        self.t = 0

    def observe(self):
        return torch.cat([self.q, self.goal, torch.full((16, 1), self.t / 50)], dim=1)

    def expert(self):
        reach = self.goal.norm(dim=1, keepdim=True)
        elbow = torch.acos((reach * self.speed).clamp(max=1.0 if self.speed < 1 else math.inf))
        return torch.cat([self.goal - self.q[:, :2], elbow - self.q[:, 2:]], dim=1)

    def step(self, action):
        self.q = self.q + 0.05 * action.clamp(-2, 2)
        self.t += 1
        if self.t == 50:
            self.reset()


class Learner:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.policy = DDP(torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)))
        self.optimizer = ZeroRedundancyOptimizer(self.policy.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
        self.history = deque(maxlen=50)
        self.rank = rank

    def update(self, obs, target):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.huber_loss(self.policy(obs), target)
        loss.backward()
        if not math.isfinite(loss.item()):
            print(f"[{self.rank}] non-finite loss, keeping weights", flush=True)
            return
        self.optimizer.step()
        self.history.append(loss.item())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    learner = Learner(rank)
    speed = 0.3
    for iteration in range(400):
        if iteration % 80 == 0:
            env = Arm(seed=17 * rank + iteration, speed=speed)
        obs, target = env.observe(), env.expert()
        learner.update(obs, target)
        with torch.no_grad():
            env.step(learner.policy.module(obs) if iteration % 3 else target)
        if rank == 0 and len(learner.history) == 50:
            speed = min(1.2, speed * 1.02)
        if iteration % 40 == 0:
            mean = torch.tensor(sum(learner.history) / max(1, len(learner.history)))
            dist.all_reduce(mean)
            if rank == 0:
                print(f"iteration {iteration} loss {mean / dist.get_world_size():.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
