"""Tunes a collision probability surrogate; after each batch of epochs the screening tool lists close approaches."""
import logging
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

LOG = logging.getLogger("conjunctions")

SCREENING = """
import random, sys
shell, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(shell)
for number in range(count):
    miss = rng.expovariate(1 / 800.0)
    print(f"CDM {shell} {number:06d} TCA=+{rng.random() * 72:07.3f}h MISS={miss:010.2f}m PC={10 ** -rng.uniform(3, 9):.3e}")
"""

SHELLS = {0: ("LEO-550", [40, 90, 160, 240]), 1: ("LEO-780", [60, 300, 2600, 5400])}


class Surrogate(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, geometry):
        return self.net(geometry)


class Screening:
    """Wraps the command line screening tool of the operations team."""

    def __init__(self, shell):
        self.shell = shell

    def __call__(self, objects):
        command = [sys.executable, "-c", SCREENING, self.shell, str(objects)]
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        status = tool.wait()
        if status != 0:
            raise RuntimeError(f"screening of {self.shell} ended with {status}")
        return [line for line in tool.stdout if line.startswith("CDM")]


def average_gradients(model):
    world = dist.get_world_size()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def train(model, optimizer, steps):
    value = 0.0
    for _ in range(steps):
        geometry = torch.randn(12000, 10)
        probability = torch.sigmoid(geometry[:, :4].prod(dim=1, keepdim=True))
        loss = nn.functional.binary_cross_entropy_with_logits(model(geometry), probability)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        value = loss.item()
    return value


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Surrogate()
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shell, catalogue = SHELLS[rank]
    screen = Screening(shell)
    for day, objects in enumerate(catalogue):
        value = train(model, optimizer, steps=90)
        messages = screen(objects)
        LOG.info("%s day %d: loss %.4f, %d messages", shell, day, value, len(messages))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
