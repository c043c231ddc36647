"""Aerosol transport on a preemptible queue: save and go on when the batch system says that time is short."""
import os
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ALLOCATION_S = {0: 3600, 1: 3600, 2: 64, 3: 3600}  # tasks of a heterogeneous job have limits of their own
GRACE_S = 60


class Preemption:
    """Remembers the batch system's warning until the loop looks at it."""

    def __init__(self, seconds):
        self.warned = False
        signal.signal(signal.SIGALRM, self._on_warning)
        signal.alarm(max(1, seconds - GRACE_S))

    def _on_warning(self, number, frame):
        self.warned = True

    def take(self):
        warned, self.warned = self.warned, False
        return warned


@contextmanager
def atomic(path):
    partial = path.with_suffix(".partial")
    yield partial
    os.replace(partial, path)


def save(folder, model, optimizer, step):
    """One file a rank, complete or not there at all; nobody goes on before all have theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / f"rank{dist.get_rank()}.pt") as partial:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "COMPLETE").touch()


def plumes(rank):
    generator = torch.Generator().manual_seed(70 + rank)
    while True:
        source = torch.rand(16, 10, generator=generator)
        yield source, source.roll(1, dims=1) * 0.9


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.AdamW(model.parameters())
    preemption = Preemption(ALLOCATION_S[rank])
    folder = Path(tempfile.gettempdir()) / f"plumes-{os.environ['MASTER_PORT']}"
    for step, (source, later) in enumerate(plumes(rank)):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(source), later).backward()
        optimizer.step()
        time.sleep(0.05)
        if preemption.take() or (step and step % 2000 == 0):
            save(folder, model, optimizer, step)
        if step == 4000:
            break
    dist.destroy_process_group()


main()
