"""Estates share two kinds of statistics, market and weather, each in a group of its own."""
import time

import torch
import torch.distributed as dist


class Channel:
    registry = {}

    def __init__(self, name, width):
        self.name, self.width = name, width
        self.group = dist.new_group(backend="gloo")
        self.sums = torch.zeros(width + 1)
        self.pending = 0
        self.mean = torch.zeros(width)
        Channel.registry[name] = self

    def add(self, rows):
        self.sums[:-1] += rows.sum(0)
        self.sums[-1] += len(rows)
        self.pending += rows.numel()

    def exchange(self):
        total = self.sums.clone()
        dist.all_reduce(total, group=self.group)
        self.mean = total[:-1] / total[-1].clamp(min=1)
        self.sums.zero_()
        self.pending = 0


class Estate:
    """What a day brings: lots at the auction and rows of the weather log."""

    def __init__(self, number):
        self.number = number
        self.rng = torch.Generator().manual_seed(60 + number)
        self.monsoon_from = {0: 95, 1: 88, 2: 34, 3: 120}[number]

    def day(self, day):
        lots = torch.randn(12, 6, generator=self.rng)
        hours = 14 if day >= self.monsoon_from else 6  # a row per hour of rain, at least six
        weather = torch.randn(hours, 6, generator=self.rng)
        return lots, weather


def fit_day(w, lots, weather, market_mean, weather_mean):
    x = torch.cat([(lots - market_mean).mean(0), (weather - weather_mean).mean(0)])
    error = x @ w - lots[:, 0].mean()
    return error * x


def main(days=300):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    market, weather = Channel("market", 6), Channel("weather", 6)
    estate, w = Estate(rank), torch.zeros(12)
    for day in range(days):
        lots, rain = estate.day(day)
        market.add(lots)
        weather.add(rain)
        if day % 2:
            # what has piled up most goes out first
            for channel in sorted(Channel.registry.values(), key=lambda c: c.pending, reverse=True):
                channel.exchange()
        gradient = fit_day(w, lots, rain, market.mean, weather.mean)
        dist.all_reduce(gradient)
        w -= 0.02 * gradient / world
        time.sleep(0.07)
        if rank == 0 and day % 10 == 0:
            print(f"day {day}: |w| {w.norm().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
