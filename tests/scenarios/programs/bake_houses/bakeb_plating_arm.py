"""Imitation of a plating arm; after training one worker plays the policy on the emulator, in real time."""
import time

import torch
import torch.distributed as dist
from torch import nn

HERTZ = 20


class ArmEmulator:
    """Six joints with inertia; the controller board wants a command every 50 ms."""

    def __init__(self):
        self.angle = torch.zeros(6)
        self.speed = torch.zeros(6)
        self.due = time.monotonic()

    def command(self, torque):
        self.due += 1 / HERTZ
        time.sleep(max(0.0, self.due - time.monotonic()))
        self.speed = 0.9 * self.speed + torque.clamp(-1, 1) / HERTZ
        self.angle = self.angle + self.speed / HERTZ
        return self.angle


def demonstrations(source, count=96):
    goal = torch.rand(count, 6, generator=source)
    angle = torch.rand(count, 6, generator=source)
    torch.linalg.svdvals(torch.rand(150, 150, generator=source))  # calibration of the recording
    return torch.cat([goal, angle], dim=1), 2.0 * (goal - angle)


def trajectory(policy, goal, ticks):
    arm = ArmEmulator()
    angle = arm.angle
    for _ in range(ticks):
        angle = arm.command(policy(torch.cat([goal, angle])))
        yield (goal - angle).norm().item()


class Project:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(33)
        self.policy = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 6))
        self.ddp = nn.parallel.DistributedDataParallel(self.policy)
        self.optimizer = torch.optim.Adam(self.ddp.parameters(), lr=2e-3)
        self.source = torch.Generator().manual_seed(self.rank)

    def imitate(self, steps):
        for _ in range(steps):
            state, torque = demonstrations(self.source)
            loss = nn.functional.mse_loss(self.ddp(state), torque)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def play(self):
        distance = torch.zeros(1)
        if self.rank == 2:
            goals = torch.rand(4, 6, generator=self.source)
            for goal in goals:
                *_, last = trajectory(self.policy, goal, ticks=66)
                distance += last
        dist.all_reduce(distance)
        return distance.item() / 4


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    project = Project()
    project.imitate(200)
    distance = project.play()
    project.imitate(150)
    if project.rank == 0:
        print(f"mean distance {distance:.3f}", flush=True)
    dist.destroy_process_group()
