"""Load balancing between gangs on one vessel: gangs share totals per hatch pair and for the whole vessel."""
import os
import time
from collections import OrderedDict

import torch
import torch.distributed as dist

GANGS = ["fore", "mid", "aft"]


class Totals:
    """Totals of one scope, changed by this gang's moves and summed over the gangs of the scope."""

    def __init__(self, scope, members, size):
        self.scope, self.size = scope, size
        self.group = dist.new_group(members)
        self.open = torch.zeros(size, dtype=torch.float64)
        self.closed = torch.zeros(size, dtype=torch.float64)

    def add(self, slot, weight):
        self.open[slot % self.size] += weight

    def close(self):
        shared = self.open.cuda()
        dist.all_reduce(shared, group=self.group)
        self.open.zero_()
        return shared


class Ledger:
    def __init__(self, gang):
        scopes = {"vessel": Totals("vessel", [0, 1, 2], 6), "hatch": Totals("hatch", [0, 1], 4)}
        if gang == "aft":
            del scopes["hatch"]
        self.scopes = scopes
        self.touched = OrderedDict()

    def move(self, scope, slot, weight):
        if scope in self.scopes:
            self.touched[scope] = self.scopes[scope]
            self.scopes[scope].add(slot, weight)

    def settle(self):
        shared = {name: totals.close() for name, totals in self.touched.items()}
        for name, value in shared.items():
            self.scopes[name].closed += value.cpu()
        self.touched.clear()


def shift_plan(gang, minute):
    """Moves of one gang in one minute: lashing bridge cargo counts for the vessel, hold cargo for the hatch."""
    hold_first = gang == "mid" and minute >= 50 and minute % 4 == 2
    kinds = ["hatch", "vessel"] if hold_first else ["vessel", "hatch"]
    for kind in kinds:
        for slot in range(3):
            yield kind, minute + slot, 4.0 + (minute * 7 + slot) % 23


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    gang = GANGS[dist.get_rank()]
    ledger = Ledger(gang)
    for minute in range(480):
        for kind, slot, weight in shift_plan(gang, minute):
            time.sleep(0.008)
            ledger.move(kind, slot, weight)
        ledger.settle()
        if minute % 15 == 0:
            print(f"{gang}: minute {minute}, vessel {ledger.scopes['vessel'].closed.sum():.0f} t", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
