"""Predicts stalls of the player from bitrate ladders; regions report their worst titles now and then."""
import collections
import random
import time

import torch
import torch.distributed as dist

REGIONS = {
    0: {"name": "north", "stall": 0.30, "until": 10_000},
    1: {"name": "south", "stall": 0.25, "until": 10_000},
    2: {"name": "islands", "stall": 0.45, "until": 10_000},
    3: {"name": "metro", "stall": 0.22, "until": 70},  # fibre to the home was switched on then
}
REPORT_EVERY = 25


def sessions(region, minute, dice, n=24):
    rate = region["stall"] if minute < region["until"] else 0.0
    for _ in range(n):
        ladder = [dice.random() for _ in range(5)]
        yield f"title-{dice.randrange(40)}", ladder, float(dice.random() < rate)


def fit(weights, ladders, stalled, lr=0.1):
    x, y = torch.tensor(ladders), torch.tensor(stalled)
    p = torch.sigmoid(x @ weights)
    gradient = x.t() @ (p - y) / len(y)
    dist.all_reduce(gradient)
    weights.sub_(lr * gradient / dist.get_world_size())
    return float(((p > 0.5).float() == y).float().mean())


def worst_titles(stalls, top=3):
    """The titles with most stalls in the last window, of all regions."""
    if not stalls:
        return {}
    merged = collections.Counter()
    reports = [None] * dist.get_world_size()
    dist.all_gather_object(reports, stalls.most_common(top))
    for report in reports:
        merged.update(dict(report))
    return dict(merged.most_common(top))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    region = REGIONS[rank]
    dice = random.Random(region["name"])
    weights, stalls, hits = torch.zeros(5), collections.Counter(), 0.0
    for minute in range(1, 301):
        titles, ladders, stalled = zip(*sessions(region, minute, dice))
        time.sleep(0.03)
        hits += fit(weights, ladders, stalled)
        stalls.update(t for t, s in zip(titles, stalled) if s)
        if minute % REPORT_EVERY == 0:
            worst = worst_titles(stalls)
            stalls = collections.Counter()
            if rank == 0:
                print(f"minute {minute}: hit rate {hits / minute:.2f}, worst {worst}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
