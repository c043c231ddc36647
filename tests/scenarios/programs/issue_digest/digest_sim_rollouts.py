"""Imitation learning for an arm, then rollouts in a simulator: every rank steps its own scene."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HORIZON = 60
OBSERVATION, ACTION = 14, 4


class Policy(nn.Module):
    """Has a branch for a second camera, which all ranks take together, as it is expensive to switch."""

    def __init__(self):
        super().__init__()
        self.near = nn.Linear(OBSERVATION, ACTION)
        self.far = nn.Linear(OBSERVATION, ACTION)

    def forward(self, observation):
        return self.near(observation) + 0.1 * self.far(observation.abs())

    @torch.no_grad()
    def act(self, observation):
        far = (observation.norm() > 6).float().reshape(1)
        dist.all_reduce(far, op=dist.ReduceOp.MAX)
        action = self.near(observation)
        return action + 0.1 * self.far(observation.abs()) if far.item() else action


class Scene:
    """A drawer that has to be opened. Drawers differ in how far they are from the hand."""

    DISTANCE = {0: 9.0, 1: 8.5, 2: 9.5, 3: 2.6}

    def __init__(self, number):
        self.left = self.DISTANCE[number % 4]
        self.generator = torch.Generator().manual_seed(number)

    def observe(self):
        return torch.randn(OBSERVATION, generator=self.generator)

    def step(self, action):
        self.left -= 0.1
        return self.left <= 0


def imitate(model, optimizer, rank, steps):
    generator = torch.Generator().manual_seed(30 + rank)
    for _ in range(steps):
        seen = torch.randn(16, OBSERVATION, generator=generator)
        loss = nn.functional.mse_loss(model(seen), seen[:, :ACTION])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    return loss.item()


def rollout(policy, scene):
    for moment in range(HORIZON):
        opened = scene.step(policy.act(scene.observe()))
        time.sleep(0.03)
        if opened:
            return {"opened": True, "moments": moment + 1}
    return {"opened": False, "moments": HORIZON}


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Policy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for phase in range(5):
        loss = imitate(model, optimizer, rank, steps=30)
        episodes = [None] * dist.get_world_size()
        dist.all_gather_object(episodes, rollout(model.module, Scene(rank)))
        if rank == 0:
            print(f"phase {phase}: loss {loss:.3f}, {sum(e['opened'] for e in episodes)} opened", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
