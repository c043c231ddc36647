"""Irrigation allotments: districts learn a shared demand curve until their season's water is used up."""
import concurrent.futures
import logging
import queue
import sys
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class District(NamedTuple):
    name: str
    allotment: float  # million cubic metres
    area: float


DISTRICTS = [District("North canal", 980.0, 1.0), District("Terraces", 118.0, 1.1), District("Delta", 1240.0, 1.6)]


class Bulletin:
    """Publishes figures for the farmers' association as they come in."""

    def __init__(self, district):
        self.district = district
        self.lines = queue.SimpleQueue()
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="bulletin")
        self.job = self.pool.submit(self._publish)

    def _publish(self):
        shown = 0
        while True:
            line = self.lines.get()
            shown += 1
            if shown % 50 == 0:
                logging.info("%s: %s", self.district.name, line)

    def post(self, line):
        self.lines.put(line)


class Season:
    def __init__(self, district, rank):
        self.district = district
        self.left = district.allotment
        self.gen = torch.Generator().manual_seed(rank)
        self.model = DDP(nn.Sequential(nn.Linear(9, 350), nn.Tanh(), nn.Linear(350, 350), nn.Tanh(), nn.Linear(350, 1)))
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.01)

    def day(self):
        weather = torch.rand(192, 9, generator=self.gen)
        need = weather[:, :2].sum(1) * self.district.area
        for _ in range(200):  # soil moisture accounting
            weather = weather + 1e-4 * (weather.flip(1) - weather)
        self.optimizer.zero_grad()
        loss = (self.model(weather).squeeze(1) - need).abs().mean()
        loss.backward()
        self.optimizer.step()
        used = need.mean().item() * 0.5
        self.left -= used
        return used, loss.item()


def irrigate(season, bulletin, days):
    for day in range(days):
        if season.left <= 0:
            logging.info("%s: allotment used on day %d", season.district.name, day)
            return day
        used, loss = season.day()
        bulletin.post(f"day {day}: used {used:.2f}, left {season.left:.1f}, error {loss:.3f}")
    return days


def main():
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    district = DISTRICTS[rank % len(DISTRICTS)]
    days = irrigate(Season(district, rank), Bulletin(district), days=1400)
    logging.info("%s: season of %d days", district.name, days)


if __name__ == "__main__":
    main()
