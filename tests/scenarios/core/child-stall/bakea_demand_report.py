"""Demand forecast for shops by region, with a report that a helper process puts together at the end of a week."""
import multiprocessing
import os
import random
import statistics
import time

import torch
import torch.distributed as dist

SHOPS = {0: 40, 1: 55, 2: 2600, 3: 60}  # by region; the third is the franchise
DAYS = 7


def bread_sold(shop, day):
    rng = random.Random(shop * 31 + day)
    return [rng.gauss(120, 15 + day) for _ in range(6)]


def compile_report(region, week, outbox):
    """Runs in a process of its own, to keep the plotting libraries out of training."""
    rows = []
    for shop in range(SHOPS[region]):
        days = [bread_sold(shop, day) for day in range(DAYS)]
        rows.append({"shop": shop, "mean": [round(statistics.fmean(d), 2) for d in days]})
    outbox.put({"region": region, "week": week, "rows": rows})


class Forecaster:
    def __init__(self, region):
        self.region = region
        self.world = dist.get_world_size()
        torch.manual_seed(9)
        self.weights = torch.zeros(DAYS + 1, requires_grad=True)
        self.opt = torch.optim.Adam([self.weights], lr=0.05)

    def step(self, k):
        shop = k % SHOPS[self.region]
        days = torch.tensor([statistics.fmean(bread_sold(shop, d)) for d in range(DAYS)]) / 100
        guess = (self.weights[:DAYS] * days).sum() + self.weights[DAYS]
        loss = (guess - days.mean()).square()
        self.opt.zero_grad()
        loss.backward()
        dist.all_reduce(self.weights.grad)
        self.weights.grad /= self.world
        self.opt.step()
        return loss.item()

    def week(self, number, steps=60):
        for k in range(steps):
            time.sleep(0.04)
            loss = self.step(number * steps + k)
        return loss


def report(region, week):
    context = multiprocessing.get_context("spawn")
    outbox = context.Queue()
    helper = context.Process(target=compile_report, args=(region, week, outbox))
    helper.start()
    helper.join()
    return outbox.get()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    region = int(os.environ["RANK"])
    forecaster = Forecaster(region)
    for week in range(4):
        loss = forecaster.week(week)
        summary = report(region, week)
        dist.barrier()
        print(f"region {region} week {week}: loss {loss:.4f}, {len(summary['rows'])} shops", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
