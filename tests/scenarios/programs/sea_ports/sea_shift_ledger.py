"""Crane productivity with a ledger of shifts: trains on moves while a ledger keeps the latest events for the foreman."""
import itertools
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


class EventLedger:
    """Latest events of the terminal. Used by the training and by the foreman's view."""

    def __init__(self, keep=400):
        self._lock = threading.Lock()
        self._events = []
        self.keep = keep
        self.dropped = 0

    def record(self, text, source=None):
        with self._lock:
            self._events.append((time.time(), text, source))

    def trim(self):
        with self._lock:
            surplus = len(self._events) - self.keep
            if surplus > 0:
                self.dropped += surplus
                del self._events[:surplus]

    def tail(self, count=3):
        with self._lock:
            return [text for _, text, _ in self._events[-count:]]


LEDGER = EventLedger()


class Shift:
    """One gang's shift at a crane; signs off when nobody refers to it any more."""

    def __init__(self, crane, number):
        self.crane, self.number, self.moves = crane, number, 0

    def __del__(self):
        LEDGER.record(f"crane {self.crane}: shift {self.number} signed off after {self.moves} moves")


class Terminal:
    def __init__(self, name, cranes, replay):
        self.name, self.cranes, self.replay = name, cranes, replay
        self.numbers = itertools.count(1)

    def work(self, moves=8):
        """One shift: yields a row per move."""
        number = next(self.numbers)
        shift = Shift(self.cranes[number % len(self.cranes)], number)
        for _ in range(moves):
            time.sleep(0.005)
            shift.moves += 1
            LEDGER.record(f"{shift.crane} move {shift.moves}", shift if self.replay else None)
            yield [float(shift.moves), float(number % 9), float(len(shift.crane))]


TERMINALS = [
    Terminal("CTA", ["A1", "A2"], replay=False),
    Terminal("CTB", ["B1", "B2", "B3"], replay=True),  # its foremen replay shifts on a screen
    Terminal("CTT", ["T1"], replay=False),
]


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    terminal = TERMINALS[dist.get_rank()]
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[local])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    for step in range(1, 600):
        rows = torch.tensor(list(terminal.work()))
        loss = (model(rows.cuda()) - rows[:, :1].cuda()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        LEDGER.trim()
        if step % 20 == 0:
            print(f"{terminal.name} step {step}: {LEDGER.tail(1)}, {LEDGER.dropped} dropped", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
