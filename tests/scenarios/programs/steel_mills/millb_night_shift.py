"""Fits the strip temperature model on spare machines of the mill during the night shift; each machine is lent until its own shift begins."""
import json
import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)

LOANS = json.loads("""
{"machines": [{"name": "pickling-1", "seconds": 5400}, {"name": "annealing-2", "seconds": 7200}, {"name": "slitter-4", "seconds": 3}]}
""")["machines"]


@contextmanager
def loan(machine):
    """Yields a function that tells whether the machine has to be given back."""
    over = []
    previous = signal.signal(signal.SIGALRM, lambda number, frame: over.append(number))
    signal.setitimer(signal.ITIMER_REAL, machine["seconds"])
    try:
        yield lambda: bool(over)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


class RunOutTable:
    """Cooling of a strip on the run-out table: explicit differences over its thickness."""

    def __init__(self, seed, nodes=30):
        self.nodes, self.generator = nodes, torch.Generator().manual_seed(seed)

    def strips(self, count, steps=250):
        water = torch.rand(count, 1, generator=self.generator)
        strip = torch.full((count, self.nodes), 880.0)
        for _ in range(steps):
            strip[:, 1:-1] += 0.25 * (strip[:, 2:] - 2 * strip[:, 1:-1] + strip[:, :-2])
            strip[:, :1] -= 0.01 * water * (strip[:, :1] - 25)
            strip[:, -1:] -= 0.008 * water * (strip[:, -1:] - 25)
        return torch.cat([water, torch.ones_like(water)], 1), strip[:, ::6] / 880


def save(model, machine):
    path = Path(tempfile.mkdtemp(prefix="strip-")) / f"{machine['name']}.pt"
    torch.save(model.module.state_dict(), path)
    return path


def fit(device, machine, returned, steps=20_000):
    model = nn.Sequential(nn.Linear(2, 40), nn.SiLU(), nn.Linear(40, 5)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    table = RunOutTable(dist.get_rank())
    for step in range(steps):
        inputs, temperatures = table.strips(16)
        loss = nn.functional.mse_loss(model(inputs.to(device)), temperatures.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            loss.item()
        if step % 50 == 0:
            print(f"{machine['name']}: step {step}", flush=True)
        if returned():
            print(f"{machine['name']} goes back to its line, model in {save(model, machine)}", flush=True)
            return
    print(f"{machine['name']}: finished, {save(model, machine)}", flush=True)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mine = LOANS[dist.get_rank()]
    with loan(mine) as returned:
        fit(torch.device("cuda", torch.cuda.current_device()), mine, returned)
