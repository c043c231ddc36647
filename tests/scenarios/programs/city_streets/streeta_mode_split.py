"""Mode split of a region: gate counts of several operators become one table per mode.

Each operator runs one process. Counts of a mode are summed over its own communicator.
"""

import os
import random
import time
from typing import NamedTuple

import torch
import torch.distributed as dist

MODES = ("rail", "tram")


class Operator(NamedTuple):
    name: str
    gates: dict
    works: range


OPERATORS = [
    Operator("metro", {"rail": 34, "tram": 18}, range(0)),
    Operator("ringbahn", {"rail": 29, "tram": 21}, range(58, 90)),
    Operator("suburban", {"rail": 40, "tram": 12}, range(0)),
]


class Gates:
    def __init__(self, operator):
        self.operator = operator
        self.rng = random.Random(operator.name)

    def minute(self, now):
        """One row for each gate that is open: (mode, zone, passengers)."""
        time.sleep(0.045)
        for mode, count in self.operator.gates.items():
            if mode == "rail" and now in self.operator.works:
                count //= 3
            for gate in range(count):
                yield mode, gate % 8, self.rng.randrange(60)


class Inbox:
    def __init__(self):
        self.rows = {mode: [] for mode in MODES}

    def add(self, mode, zone, passengers):
        self.rows[mode].append((zone, passengers))

    def drain(self):
        # the fullest first: what it holds is freed before the next table is built
        for mode in sorted(self.rows, key=lambda m: len(self.rows[m]), reverse=True):
            rows, self.rows[mode] = self.rows[mode], []
            yield mode, rows


class Region:
    def __init__(self):
        self.device = torch.device("cuda", torch.cuda.current_device())
        everyone = list(range(dist.get_world_size()))
        self.groups = {mode: dist.new_group(everyone) for mode in MODES}
        self.totals = {mode: [0] * 8 for mode in MODES}

    def merge(self, mode, rows):
        table = torch.zeros(8, dtype=torch.int64)
        for zone, passengers in rows:
            table[zone] += passengers
        shared = table.to(self.device)
        dist.all_reduce(shared, group=self.groups[mode])
        for zone, passengers in enumerate(shared.tolist()):
            self.totals[mode][zone] += passengers

    def split(self):
        sums = {mode: sum(zones) for mode, zones in self.totals.items()}
        whole = sum(sums.values()) or 1
        return ", ".join(f"{mode} {100 * n / whole:.1f}%" for mode, n in sums.items())


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    operator = OPERATORS[dist.get_rank()]
    gates, inbox, region = Gates(operator), Inbox(), Region()
    for now in range(24 * 60):
        for row in gates.minute(now):
            inbox.add(*row)
        for mode, rows in inbox.drain():
            region.merge(mode, rows)
        if now % 15 == 0:
            print(f"{operator.name} {now // 60:02d}:{now % 60:02d} {region.split()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
