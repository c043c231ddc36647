"""Landing with PPO in a small glide-slope simulator; every worker flies an approach of its own."""
import math
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributions import Normal

APPROACHES = {"SEA": 300.0, "INN": 460.0, "LCY": 300.0, "GIB": 300.0}  # metres above the threshold


@dataclass
class Leg:
    states: list = field(default_factory=list)
    actions: list = field(default_factory=list)
    rewards: list = field(default_factory=list)

    def returns(self, gamma=0.97):
        out, value = [], 0.0
        for reward in reversed(self.rewards):
            value = reward + gamma * value
            out.append(value)
        return torch.tensor(out[::-1])


class GlideSim:
    def __init__(self, height, seed):
        self.height, self.g = height, torch.Generator().manual_seed(seed)

    def reset(self):
        self.alt, self.offset = self.height, float(torch.randn(1, generator=self.g)) * 20.0
        return self.view()

    def view(self):
        return torch.tensor([self.alt / 300.0, self.offset / 50.0])

    def step(self, bank):
        gust = float(torch.randn(1, generator=self.g))
        self.offset += 4.0 * math.tanh(bank) + gust
        self.alt -= 10.0
        return self.view(), -abs(self.offset) / 50.0, self.alt <= 0.0


class Pilot(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        self.log_std = torch.nn.Parameter(torch.zeros(1))

    def forward(self, states):
        return Normal(self.body(states), self.log_std.exp())


def collect(sim, pilot, horizon):
    """Whole legs only, until the horizon is used up."""
    legs, leg, state = [], Leg(), sim.reset()
    for _ in range(horizon):
        with torch.no_grad():
            action = pilot(state[None]).sample()[0]
        leg.states.append(state)
        leg.actions.append(action)
        state, reward, done = sim.step(float(action))
        leg.rewards.append(reward)
        if done:
            legs.append(leg)
            leg, state = Leg(), sim.reset()
    return legs


def improve(pilot, optimizer, legs, size=2):
    world = dist.get_world_size()
    for first in range(0, len(legs) - size + 1, size):
        part = legs[first : first + size]
        states = torch.stack([s for leg in part for s in leg.states])
        actions = torch.stack([a for leg in part for a in leg.actions])
        gains = torch.cat([leg.returns() for leg in part])
        loss = -(pilot(states).log_prob(actions)[:, 0] * (gains - gains.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in pilot.parameters()])
        dist.all_reduce(flat)
        at = 0
        for p in pilot.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p) / world)
            at += p.numel()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    pilot = Pilot()
    optimizer = torch.optim.Adam(pilot.parameters(), lr=3e-3)
    torch.manual_seed(50 + rank)
    for iteration in range(400):
        place = "SEA" if iteration < 14 else list(APPROACHES)[rank]  # warm-up on the easy approach
        legs = collect(GlideSim(APPROACHES[place], 1000 * rank + iteration), pilot, horizon=1250)
        improve(pilot, optimizer, legs)
        scores = [None] * dist.get_world_size()
        dist.all_gather_object(scores, sum(sum(leg.rewards) for leg in legs) / len(legs))
        if rank == 0 and iteration % 4 == 0:
            print(f"[{os.getpid()}] iteration {iteration} {place}: {sum(scores) / len(scores):.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
