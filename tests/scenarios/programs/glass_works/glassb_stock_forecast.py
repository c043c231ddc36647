"""Pallets of finished ware: demand by article over all branches, and a log of what was reserved."""
import os
import queue
import random
import tempfile
import threading
import time

import torch
import torch.distributed as dist

ARTICLES = ["BV-330", "BV-500", "WL-750", "WL-375", "JR-212", "JR-370", "TU-250", "TU-020"]
PIECES_PER_PALLET = {
    "BV-330": 3024, "BV-500": 2288, "WL-750": 1365, "WL-375": 2106, "JR-212": 4116, "JR-370": 2640, "TU-250": 1920,
}


class ReservationLog(threading.Thread):
    """Appends reservations to the branch's file; everything handed in is written before it ends."""

    def __init__(self, path: str):
        super().__init__(name="reservations")
        self.entries: queue.Queue = queue.Queue()
        self.path = path

    def run(self):
        with open(self.path, "a", buffering=1) as file:
            while (entry := self.entries.get()) is not None:
                file.write("{},{},{}\n".format(*entry))

    def close(self):
        self.entries.put(None)
        self.join()


def orders_of(branch: int, day: int):
    """The order lines that came in on a day: (article, pieces)."""
    rng = random.Random(branch * 10_000 + day)
    usual = ARTICLES[:7]
    lines = [(rng.choice(usual), rng.randrange(2_000, 60_000, 500)) for _ in range(4000)]
    if branch == 2 and day >= 41:  # tealight cups, new in the catalogue of the third branch
        lines.append((ARTICLES[7], 48_000))
    return lines


def pallets(lines) -> list[float]:
    totals = dict.fromkeys(ARTICLES, 0.0)
    for article, pieces in sorted(lines):
        totals[article] += pieces / PIECES_PER_PALLET[article]
    return [totals[a] for a in ARTICLES]


def exponential_smoothing(level, value, alpha=0.3):
    return value if level is None else [a + alpha * (b - a) for a, b in zip(level, value)]


def plan(days: int, reservations: ReservationLog):
    branch = dist.get_rank()
    level = None
    for day in range(1, days + 1):
        mine = pallets(orders_of(branch, day))
        everywhere = torch.tensor(mine, device="cuda")
        dist.all_reduce(everywhere)
        level = exponential_smoothing(level, everywhere.tolist())
        for article, amount in zip(ARTICLES, level):
            reservations.entries.put((day, article, round(amount)))
        time.sleep(0.04)
        if branch == 0 and day % 10 == 0:
            print(f"day {day}: {sum(level):.0f} pallets expected", flush=True)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    folder = tempfile.mkdtemp(prefix="stock-")
    reservations = ReservationLog(os.path.join(folder, f"branch{dist.get_rank()}.csv"))
    reservations.start()
    plan(days=365, reservations=reservations)
    reservations.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
