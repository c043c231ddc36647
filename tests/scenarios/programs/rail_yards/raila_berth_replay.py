"""Vessel arrival model. Before the second stage one rank takes a replay of the harbour radar in real time."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

REPLAY = r"""
import random, sys, time
random.seed(3)
with open(sys.argv[1], "w") as f:
    for sweep in range(48):
        ships = " ".join(f"{random.gauss(0, 1):.3f}" for _ in range(24))
        f.write(ships + "\n")
        f.flush()
        time.sleep(0.28)
    f.write("END\n")
"""


def follow(path, interval=0.1):
    """Lines of a file that is still being written."""
    while not path.exists():
        time.sleep(interval)
    with path.open() as f:
        rest = ""
        while True:
            piece = f.readline()
            if not piece:
                time.sleep(interval)
                continue
            rest += piece
            if rest.endswith("\n"):
                if rest.strip() == "END":
                    return
                yield [float(v) for v in rest.split()]
                rest = ""


def take_replay():
    path = pathlib.Path(tempfile.mkdtemp(prefix="radar_")) / "sweeps.txt"
    child = subprocess.Popen([sys.executable, "-c", REPLAY, str(path)])
    sweeps = torch.tensor(list(follow(path)))
    child.wait()
    return sweeps


class Stage:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)

    def run(self, data, steps):
        world = dist.get_world_size()
        for step in range(steps):
            x = data[torch.randint(0, len(data), (16,))]
            loss = (self.model(x) - x.cumsum(1)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad.div_(world)
            self.opt.step()
            time.sleep(0.03)
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = nn.Linear(24, 24)
    first = Stage(model, 0.05).run(torch.randn(200, 24), 90)
    sweeps = [take_replay() if rank == 2 else None]
    dist.broadcast_object_list(sweeps, src=2)
    second = Stage(model, 0.02).run(sweeps[0], 90)
    if rank == 0:
        print(f"stage one {first:.3f}, stage two {second:.3f} on {len(sweeps[0])} sweeps", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
