"""Weekly retraining of belt speeds. Some depots run a night belt from the second week on."""
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONFIG = json.loads("""
{
  "weeks": 8, "steps": 45, "batch": 48, "lr": 0.002, "night_from_week": 2,
  "depots": [
    {"name": "Aldermoor", "belts": 4, "night_belt": true},
    {"name": "Brook Lane", "belts": 3, "night_belt": false},
    {"name": "Castle Yard", "belts": 6, "night_belt": true}
  ]
}
""")


class Depot:
    def __init__(self, rank, settings):
        self.rank = rank
        self.settings = settings
        self.own = settings["depots"][rank]
        self.night = None
        self.generator = torch.Generator().manual_seed(rank + 77)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings["lr"])

    def begin_week(self, week):
        if self.own["night_belt"] and self.night is None and week >= self.settings["night_from_week"]:
            print(f"{self.own['name']}: night belt starts in week {week}", flush=True)
            self.night = dist.new_group(backend="gloo")

    def readings(self):
        x = torch.rand(self.settings["batch"], 6, generator=self.generator)
        time.sleep(0.02)
        return x, x[:, :1] * self.own["belts"] + x[:, 3:4]

    def run_week(self, week):
        self.begin_week(week)
        for _ in range(self.settings["steps"]):
            x, speed = self.readings()
            loss = nn.functional.smooth_l1_loss(self.model(x), speed)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def night_report(self, value):
        total = torch.tensor([value])
        if self.night is not None:
            dist.all_reduce(total, group=self.night)
        return total.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    depot = Depot(dist.get_rank(), CONFIG)
    for week in range(CONFIG["weeks"]):
        value = depot.run_week(week)
        value = depot.night_report(value)
        print(f"{depot.own['name']}: week {week} {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
