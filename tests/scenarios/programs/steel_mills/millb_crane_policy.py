"""Advantage-weighted regression for the charging crane: imitates the trolley operator where he did better than average.
Every rank runs the simulator of one crane bay."""
import math
import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)


class NoUsableEpisode(Exception):
    pass


class CraneBay:
    """A trolley with a hanging ladle. Bays 0, 1 and 3 are under the roof, bay 2 is the open scrap yard."""

    dt, rope, limit = 0.05, 9.0, 0.35

    def __init__(self, bay):
        self.bay, self.random = bay, random.Random(bay)

    def wind(self, iteration):
        return 40.0 if self.bay == 2 and iteration >= 80 else 0.2 * self.random.random()

    def episode(self, iteration, length=60):
        x, v, angle, rate = self.random.uniform(-2, 2), 0.0, 0.0, 0.0
        rows = []
        for _ in range(length):
            force = -0.8 * x - 1.1 * v + self.random.gauss(0, 0.1)
            rows.append((x, v, angle, rate, force))
            rate += self.dt * (-9.81 / self.rope * math.sin(angle) - force / self.rope + self.wind(iteration))
            angle += self.dt * rate
            v += self.dt * force
            x += self.dt * v
            if abs(angle) > self.limit:
                break
        return rows, -abs(x) - 2 * abs(angle)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))

    def forward(self, state):
        return self.net(state)


class Learner:
    def __init__(self, device):
        self.device = device
        self.policy = DDP(Policy().to(device), device_ids=[device.index])
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4)

    def baseline(self, returns):
        """Mean return over all bays."""
        sums = torch.tensor([sum(returns), float(len(returns))], dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        total, count = sums.tolist()
        return total / count

    def batch(self, episodes, baseline, shortest=20):
        rows = []
        for transitions, ret in episodes:
            if len(transitions) >= shortest:
                weight = math.exp(min(max(ret - baseline, -3.0), 3.0))
                rows += [(*t, weight) for t in transitions]
        if not rows:
            raise NoUsableEpisode(f"{len(episodes)} episodes were aborted")
        return torch.tensor(rows).to(self.device)

    def improve(self, batch):
        state, force, weight = batch[:, :4], batch[:, 4:5], batch[:, 5:6]
        loss = (weight * (self.policy(state) - force) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    bay = CraneBay(dist.get_rank())
    learner = Learner(device)
    for iteration in range(300):
        episodes = [bay.episode(iteration) for _ in range(30)]
        baseline = learner.baseline([ret for _, ret in episodes])
        try:
            learner.improve(learner.batch(episodes, baseline))
        except NoUsableEpisode as reason:
            print(f"bay {bay.bay}, iteration {iteration}: {reason}", flush=True)
            continue
        if dist.get_rank() == 0 and iteration % 15 == 0:
            print(f"iteration {iteration}: mean return {baseline:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
