"""Berth allocation: a policy net is scored now and then by a discrete-event simulator in a program of its own."""
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

torch.backends.cudnn.enabled = False

SIMULATOR = r"""
import heapq, random, sys, time
days, seconds = int(sys.argv[1]), float(sys.argv[2])
rng = random.Random(4)
waiting = 0.0
for day in range(days):
    until = time.monotonic() + seconds / days
    events = []
    while time.monotonic() < until:
        heapq.heappush(events, (rng.random(), rng.random()))
        if len(events) > 500:
            start, stay = heapq.heappop(events)
            waiting += max(0.0, stay - start) / 1e4
    print("day", day, round(waiting, 3), flush=True)
print("total", round(waiting, 3), flush=True)
"""


def simulate(days=8, seconds=13.0):
    command = [sys.executable, "-c", SIMULATOR, str(days), str(seconds)]
    total = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            word, *numbers = line.split()
            if word == "day":
                print(f"simulated day {numbers[0]}: {numbers[1]} h of waiting", flush=True)
            else:
                total = float(numbers[0])
    return total


class Planner:
    scorer = 1  # the process that has a licence for the simulator

    def __init__(self):
        self.accelerator = Accelerator()
        net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.net, self.optimizer = self.accelerator.prepare(net, optimizer)

    def improve(self, steps):
        for _ in range(steps):
            time.sleep(0.05)
            quay = torch.rand(8, 16).to(self.accelerator.device)
            berth = torch.randint(0, 5, (8,)).to(self.accelerator.device)
            loss = nn.functional.cross_entropy(self.net(quay), berth)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            loss.item()

    def score(self):
        result = [simulate() if self.accelerator.process_index == self.scorer else None]
        dist.broadcast_object_list(result, src=self.scorer)
        return result[0]


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    planner = Planner()
    planner.improve(50)
    score = planner.score()
    planner.accelerator.print(f"waiting in the simulation: {score}")
    planner.improve(50)
    planner.accelerator.wait_for_everyone()
    planner.accelerator.end_training()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
