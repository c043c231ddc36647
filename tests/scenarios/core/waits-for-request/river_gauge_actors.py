"""Flood forecasts from river gauges: learners are Ray actors, and a driver feeds them the gauges' records, week by week."""

import os
import socket
import tempfile
import time

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
import torch.distributed as dist
from torch import nn


@ray.remote(num_cpus=1)
class GaugeLearner:
    def __init__(self, rank, world, port):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def ready(self):
        return dist.get_rank()

    def learn_week(self, levels):
        levels = torch.tensor(levels)
        loss = (self.model(levels[:, :7]).squeeze(1) - levels[:, 7]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        self.optimizer.step()
        time.sleep(0.03)
        return loss.item()


class Station:
    """A gauge's archive. One of them was built later than the others."""

    def __init__(self, name, weeks):
        self.name = name
        self.records = torch.randn(weeks, 4, 8, generator=torch.Generator().manual_seed(len(name))).cumsum(2)

    @property
    def weeks_left(self):
        return len(self.records)

    def next_week(self):
        week, self.records = self.records[0], self.records[1:]
        return week.tolist()


class Campaign:
    def __init__(self, stations, learners):
        self.pairs = list(zip(stations, learners))

    def week(self):
        calls = [learner.learn_week.remote(station.next_week()) for station, learner in self.pairs if station.weeks_left]
        return ray.get(calls)

    def run(self):
        number = 0
        while any(station.weeks_left for station, _ in self.pairs):
            losses = self.week()
            number += 1
            if number % 10 == 0:
                print(f"week {number} loss {sum(losses) / len(losses):.3f}", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    ray.init(
        address="local",
        num_cpus=3,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        _temp_dir=tempfile.mkdtemp(prefix="ray-", dir="/tmp"),
    )
    stations = [Station("Oberau", 400), Station("Mittenbruck", 400), Station("Seeon", 32)]
    port = free_port()
    learners = [GaugeLearner.remote(rank, len(stations), port) for rank in range(len(stations))]
    print("learners", ray.get([learner.ready.remote() for learner in learners]), flush=True)
    Campaign(stations, learners).run()


if __name__ == "__main__":
    main()
