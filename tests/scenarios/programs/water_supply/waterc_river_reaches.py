"""River routing over two reaches, one per process: waves travel down in blocks, backwater levels travel up."""
import argparse
import math
import time

import torch
import torch.distributed as dist

UP, DOWN = 0, 1
BLOCK = 12  # time steps that are exchanged at once


class Reach:
    def __init__(self, cells, slope):
        self.level = torch.full((cells,), 2.0)
        self.slope = slope

    def route(self, inflow, backwater):
        out = torch.empty(len(inflow))
        for t, q in enumerate(inflow.tolist()):
            wave = torch.cat([torch.tensor([q]), self.level[:-1]])
            self.level = 0.7 * self.level + 0.3 * wave
            self.level[-1] = 0.9 * self.level[-1] + 0.1 * backwater
            out[t] = self.level[-1] * self.slope
        time.sleep(0.008)
        return out


class Upper:
    """Headwaters: gets a day's rain, hands its outflow down block by block."""

    def __init__(self):
        self.reach = Reach(120, 1.05)
        self.backwater = torch.zeros(1)

    def day(self, rain):
        for block in rain.split(BLOCK):
            if len(block) < BLOCK:
                break  # a rest is kept for the morning
            dist.send(self.reach.route(block, self.backwater.item()), dst=DOWN)
            dist.recv(self.backwater, src=DOWN)
        return self.backwater.item()


class Lower:
    def __init__(self):
        self.reach = Reach(80, 0.97)

    def day(self, rain):
        inflow = torch.zeros(BLOCK)
        for _ in range(math.ceil(len(rain) / BLOCK)):
            dist.recv(inflow, src=UP)
            out = self.reach.route(inflow, 1.8)
            dist.send(out.mean().reshape(1), dst=UP)
        return out.mean().item()


def rainfall(day, resolution):
    steps = 24 * resolution
    gen = torch.Generator().manual_seed(day)
    return 2 + torch.rand(steps, generator=gen)


class Calendar:
    """Summer storms are recorded at a finer resolution; days of change have an hour more."""

    def __init__(self, change_day):
        self.change_day = change_day

    def rain(self, day):
        rain = rainfall(day, resolution=2 if day % 3 else 4)
        return torch.cat([rain, rain[-2:]]) if day == self.change_day else rain


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--change-day", type=int, default=22)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    part = Upper() if dist.get_rank() == UP else Lower()
    calendar = Calendar(args.change_day)
    final = torch.zeros(1)
    for day in range(args.days):
        level = part.day(calendar.rain(day))
        if dist.get_rank() == UP:
            dist.recv(final, src=DOWN)  # level at the mouth, for the daily bulletin
            print(f"day {day}: bridge {level:.3f}, mouth {final.item():.3f}", flush=True)
        else:
            dist.send(torch.tensor([level]), dst=UP)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
