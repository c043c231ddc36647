"""Weekly harvest forecast per district, with telemetry to the cooperative's dashboard."""
import json
import logging
import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOG = logging.getLogger("harvest")
FACTORS = {"wheat": 0.84, "barley": 0.81, "maize": 0.86, "rape": 0.91, "sugar beet": 0.23, "potato": 0.21}


class Dashboard:
    def __init__(self, path):
        self.path, self.rows = path, queue.Queue()
        self.thread = threading.Thread(target=self.write, name="dashboard")
        self.thread.start()

    def push(self, **row):
        self.rows.put(row)

    def write(self):
        with open(self.path, "a") as out:
            while (row := self.rows.get()) is not None:
                out.write(json.dumps(row) + "\n")
                out.flush()

    def finish(self):
        self.rows.put(None)
        self.thread.join()


class District:
    def __init__(self, number):
        self.number = number
        self.gen = torch.Generator().manual_seed(number)
        self.crops = sorted(FACTORS)[:5] + (["soybean"] if number == 47 else [])

    def week(self):
        area = torch.rand(512, len(self.crops), generator=self.gen)
        dry_matter = torch.tensor([FACTORS[crop] for crop in self.crops])
        climate = torch.rand(512, 24, generator=self.gen)
        tonnes = (area[:, :5] * dry_matter[:5]).sum(1) * climate.mean(1)
        return torch.cat([area[:, :5], climate], 1), tonnes


def forecast(rank, world, dashboard):
    net = nn.Sequential(nn.Linear(29, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for turn in range(40):
        district = District(turn * world + rank)
        total = 0.0
        for _ in range(10):
            inputs, tonnes = district.week()
            loss = (model(inputs).squeeze(1) - tonnes).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        dashboard.push(district=district.number, error=total / 10)
        LOG.info("district %d: %.4f", district.number, total / 10)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING)
    dist.init_process_group("gloo")
    dashboard = Dashboard(f"dashboard-{rank}.jsonl")
    torch.manual_seed(2)
    forecast(rank, world, dashboard)
    dashboard.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
