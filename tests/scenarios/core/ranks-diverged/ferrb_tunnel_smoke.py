"""Smoke density in road tunnels from ceiling sensors. Run with torchrun."""
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Settings:
    steps: int = 60
    sensors: int = 24
    lr: float = 1e-3
    maintenance: dict = field(default_factory=lambda: {1: range(31, 32), 2: range(90, 95)})  # tube -> minutes


class Tube:
    """One tube of the tunnel; sensors report zero while they are serviced."""

    def __init__(self, number, settings):
        self.number, self.settings = number, settings
        self.generator = torch.Generator().manual_seed(number)

    def minute(self, n):
        time.sleep(0.05)
        values = torch.rand(self.settings.sensors, 8, generator=self.generator) + 0.1
        if n in self.settings.maintenance.get(self.number, ()):
            values = torch.zeros_like(values)
        return values


class SmokeTrainer:
    def __init__(self, settings):
        self.settings = settings
        self.tube = Tube(dist.get_rank(), settings)
        torch.manual_seed(3)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lr)
        self.history = []

    def select(self, values):
        return values[values.sum(1) > 0]

    def run(self):
        for n in range(self.settings.steps):
            values = self.select(self.tube.minute(n))
            if len(values) == 0:
                print(f"tube {self.tube.number}: minute {n} has no readings", flush=True)
                continue
            density = values.mean(1, keepdim=True) * 2.0
            loss = nn.functional.mse_loss(self.model(values), density)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())
        return sum(self.history[-10:]) / 10

    def report(self, value):
        reports = [None] * dist.get_world_size()
        dist.all_gather_object(reports, (self.tube.number, value))
        return dict(reports)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = SmokeTrainer(Settings())
    table = trainer.report(trainer.run())
    if dist.get_rank() == 0:
        print("mean loss per tube", table)
    dist.destroy_process_group()
