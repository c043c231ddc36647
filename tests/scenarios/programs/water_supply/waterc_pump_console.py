"""Pump schedule optimiser with a live console: lines go through one console, state is shown beside them."""
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Console:
    """Collects lines and hands each to the listeners, so that panels are redrawn below the text."""

    def __init__(self):
        self.lock = threading.Lock()
        self.listeners = []
        self.lines = 0

    def write(self, text, redraw=True):
        with self.lock:
            self.lines += 1
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
            for listener in self.listeners if redraw else ():
                listener(text)


class PumpBoard:
    """State of the pumps as the operators see it."""

    def __init__(self, console, pumps):
        self.lock = threading.Lock()
        self.console = console
        self.state = dict.fromkeys(pumps, 0.0)
        self.alarms = 0

    def update(self, speeds):
        with self.lock:
            for name, speed in zip(self.state, speeds):
                self.state[name] = speed
            time.sleep(0.005)
            if max(self.state.values()) > 0.8:
                self.alarms += 1
                self.console.write(f"alarm {self.alarms}: {self.state}", redraw=False)

    def redraw(self, text):
        time.sleep(0.25)  # the terminal is at the other end of a modem line
        with self.lock:
            if self.alarms:
                sys.stdout.write(f"   [{len(self.state)} pumps, {self.alarms} alarms]\n")


class PressureReport(threading.Thread):
    def __init__(self, console, period=0.5):
        super().__init__(daemon=True)
        self.console, self.period = console, period

    def run(self):
        while True:
            time.sleep(self.period)
            self.console.write(f"pressure at {time.strftime('%X')} nominal")


def demand_curve(step, gen, n=48):
    x = torch.rand(n, 8, generator=gen)
    peak = min(1.0, step / 120)
    return x, (x.mean(1, keepdim=True) * 0.2 + peak).expand(n, 3)


def train(rank, steps=400):
    torch.manual_seed(9)
    gen = torch.Generator().manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    board = None
    if rank == 0:
        console = Console()
        board = PumpBoard(console, ["intake", "booster", "tower"])
        console.listeners.append(board.redraw)
        PressureReport(console).start()
    for step in range(steps):
        x, target = demand_curve(step, gen)
        speeds = model(x)
        loss = (speeds - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if board is not None:
            board.update(speeds.mean(0).tolist())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
