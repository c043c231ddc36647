"""Loading gauge: a laser survey is converted by a tool that writes its table bit by bit; training goes on once it is there."""
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import sleep

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

CONVERTER = """
import math, sys, time
target, rows = sys.argv[1], int(sys.argv[2])
with open(target + '.part', 'w') as out:
    for row in range(rows):
        points = [math.hypot(math.sin(row * 0.01 + a * 0.1), 2.0) for a in range(2000)]
        out.write('%.5f %.5f %.5f\\n' % (min(points), max(points), sum(points) / len(points)))
        if row % 20 == 0:
            out.flush()
        time.sleep(0.008)
import os
os.rename(target + '.part', target)
"""


@contextlib.contextmanager
def converting(target, rows):
    tool = subprocess.Popen([sys.executable, "-c", CONVERTER, str(target), str(rows)])
    try:
        yield tool
    finally:
        if tool.wait() != 0:
            raise RuntimeError(f"gauge converter gave {tool.returncode}")


def arrival(path, every=1.0):
    """Sizes of the table as it grows, until it has its final name."""
    part = Path(f"{path}.part")
    while not path.exists():
        yield part.stat().st_size if part.exists() else 0
        sleep(every)


class GaugeTraining:
    def __init__(self, rank):
        self.rank = rank
        self.gen = torch.Generator().manual_seed(rank)
        self.model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 24), torch.nn.SELU(), torch.nn.Linear(24, 1)))
        self.optim = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3)

    def run(self, table, steps):
        for step in range(steps):
            rows = table[torch.randint(len(table), (64,), generator=self.gen)]
            loss = torch.nn.functional.mse_loss(self.model(rows), rows.prod(dim=1, keepdim=True))
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            sleep(0.015)
        print(f"[{self.rank}] {steps} steps, loss {loss.item():.4f}", flush=True)


def survey(rank, rows=1450):
    shape = torch.zeros(rows, 3)
    if rank == 0:
        path = Path(tempfile.mkdtemp(prefix="gauge-")) / "tunnel.txt"
        with converting(path, rows):
            sizes = list(arrival(path))
        shape = torch.from_numpy(np.loadtxt(path, dtype=np.float32))
        print(f"table after {len(sizes)} looks, {os.path.getsize(path)} bytes", flush=True)
    dist.broadcast(shape, src=0)
    return shape


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(15)
    training = GaugeTraining(dist.get_rank())
    training.run(torch.rand(500, 3), 130)
    training.run(survey(dist.get_rank()), 160)
    dist.barrier()
    dist.destroy_process_group()
