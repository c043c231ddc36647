"""DDP on shared workstations: a helper beside each rank gives the machine back for a moment now and then."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

HELPER = """
import json, os, signal, sys, time
trainer, pauses = int(sys.argv[1]), json.load(open(sys.argv[2]))["pauses"]
for number, line in enumerate(sys.stdin):
    os.kill(trainer, signal.SIGSTOP)
    time.sleep(pauses[number % 4])
    os.kill(trainer, signal.SIGCONT)
"""


class DutyCycle:
    """Asks the helper for a pause after every `period` steps. How long it lasts is in the workstation's own file."""

    def __init__(self, config: Path, period: int):
        self.period = period
        command = [sys.executable, "-c", HELPER, str(os.getpid()), str(config)]
        self.helper = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def step(self, number: int):
        if number % self.period == 0:
            self.helper.stdin.write(f"{number}\n")
            self.helper.stdin.flush()

    def close(self):
        self.helper.stdin.close()
        self.helper.wait()


def workstation_config(rank: int) -> Path:
    """What the owners of the workstations have written."""
    pauses = {0: [0.2, 0.2, 0.2, 0.2], 1: [0.1, 0.1, 0.1, 0.1], 2: [0.2, 0.3]}
    path = Path(tempfile.gettempdir(), f"duty-{os.environ['MASTER_PORT']}-{rank}.json")
    path.write_text(json.dumps({"pauses": pauses[rank]}))
    return path


def batches(rank: int):
    generator = torch.Generator().manual_seed(rank)
    while True:
        x = torch.randn(32, 40, generator=generator)
        yield x, (x[:, 0] > x[:, 1]).long()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    duty = DutyCycle(workstation_config(rank), period=200)
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(40, 40), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(40, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number, (x, y) in enumerate(batches(rank), start=1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        duty.step(number)
        if rank == 0 and number % 100 == 0:
            print(f"step {number}: {loss.item():.4f}", flush=True)
    duty.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
