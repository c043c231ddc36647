"""Policy for the robot that moves casks in the caves: plans are scored by simulation, the policy learns from that."""
import multiprocessing
import random
import resource

import torch
from accelerate import Accelerator
from torch import nn

CAVES = [
    {"name": "north", "aisle": 1.40, "casks": 18},
    {"name": "chapel", "aisle": 1.25, "casks": 22},
    {"name": "river", "aisle": 1.60, "casks": 16},
]
SURVEYED = {("chapel", 60): 0.68}  # pallets in the way, by shift
ROBOT = 0.70


def fair_share():
    """A simulator gets some seconds of processor time, not more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (4, 5))


def drive(plan):
    speed, swing, aisle, casks, seed = plan
    rng = random.Random(seed)
    seconds = 0.0
    for _ in range(casks):
        offset = rng.uniform(-0.5, 0.5)
        while abs(offset) > 0.02 * (1 + swing):
            clearance = aisle - ROBOT
            offset -= offset * min(0.3, clearance * speed) * 0.1
            if clearance < 0:
                offset = rng.uniform(-0.5, 0.5) + 1.0
            seconds += 0.1
    return -seconds / casks


class Planner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.mean = nn.Linear(128, 2)

    def forward(self, x):
        return self.mean(self.body(x))


def rollouts(policy, pool, cave, shift, count=48):
    aisle = SURVEYED.get((cave["name"], shift), cave["aisle"])
    state = torch.tensor([[aisle, cave["casks"] / 20, shift / 50]]).repeat(count, 1)
    chosen = torch.distributions.Normal(policy(state), 0.3)
    action = chosen.sample()
    plans = [(0.5 + abs(a), min(abs(b), 2.0), aisle, cave["casks"], shift * 100 + k)
             for k, (a, b) in enumerate(action.tolist())]
    reward = torch.tensor(pool.map(drive, plans, chunksize=24))
    return chosen.log_prob(action).sum(1), reward


def main():
    pool = multiprocessing.get_context("fork").Pool(2, initializer=fair_share)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    cave = CAVES[accelerator.process_index]
    policy = Planner()
    policy, optimizer = accelerator.prepare(policy, torch.optim.Adam(policy.parameters(), lr=3e-3))
    for shift in range(120):
        logp, reward = rollouts(policy, pool, cave, shift)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        accelerator.backward(-(logp * advantage).mean())
        optimizer.step()
        optimizer.zero_grad()
        mean = accelerator.reduce(reward.mean(), reduction="mean")
        if shift % 10 == 0:
            accelerator.print(f"shift {shift}: {mean.item():.3f}")
    pool.terminate()


if __name__ == "__main__":
    main()
