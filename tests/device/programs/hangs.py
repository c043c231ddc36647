"""Twenty healthy steps, then a hang by its name, in one of the branches of a long chain as tests have them.

``branch``: rank 0 alone reduces once more. ``caught``: rank 1's exception is caught around a collective. ``sizes``: two sizes
meet. ``kinds``: two operations meet. ``recv``: both receive. ``sleeps``, ``stopped``, ``raises``: rank 1 does that.
``absent``: rank 1 loads data before its first collective. ``number``: it sleeps, and the other asks whether an attribute is a
number. ``gather``: nothing is wrong: both gather to rank 0 a hundred times. ``loads``: nothing is wrong: rank 1 reads and
decodes large files until a file appears. A second argument is torch's own time limit in seconds, a third that file.
"""

import os
import signal
import sys
import time
import zlib
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def load_data():
    time.sleep(10000)


def load(end):
    image = end.with_name("image")
    image.write_bytes(os.urandom(1 << 24))
    while not end.exists():
        zlib.decompress(zlib.compress(image.read_bytes(), 6))


class Trainer:
    """Keeps its loss to itself."""

    def reduce(self, tensor):
        dist.all_reduce(tensor)
        self.loss = tensor.sum()
        if torch.isnan(self.loss):
            print(f"rank {rank}: no number\n", end="", flush=True)


case = sys.argv[1]
limit_s = float(sys.argv[2]) if len(sys.argv) > 2 else 600.0
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", timeout=timedelta(seconds=limit_s))
x = torch.ones(1 << 16, device="cuda")
y = torch.ones(8, device="cuda")
outs = [torch.empty_like(y) for _ in range(2)]
trainer = Trainer()
if case == "absent" and rank == 1:
    load_data()
for step in range(120):
    now = step == 20
    if now and rank == 1:
        if case in {"sleeps", "number"}:
            time.sleep(10000)
        elif case == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif case == "raises":
            raise RuntimeError("a broken shard")
        elif case == "loads":
            load(Path(sys.argv[3]))
    if case == "branch" and now:
        if rank == 0:
            dist.all_reduce(x)
    elif case == "caught":
        try:
            if now:
                int("9" if rank == 0 else "nine")
            dist.all_reduce(y)
        except ValueError as error:
            print(f"rank {rank}: skipped, {error}\n", end="", flush=True)
        dist.all_reduce(x)
        x[0].item()
    elif case == "sizes" and now:
        dist.all_reduce(x[: 1000 - rank])
    elif case == "kinds" and now:
        if rank == 0:
            dist.broadcast(x, src=0)
        else:
            dist.all_reduce(x)
    elif case == "recv" and now:
        dist.recv(y, src=1 - rank)
    elif case == "number":
        trainer.reduce(x)
    elif case == "gather":
        dist.gather(y, outs if rank == 0 else None, dst=0)
        y[0].item()
    else:
        dist.all_reduce(x)
        dist.all_gather(outs, y)
        outs[0][0].item()
dist.destroy_process_group()
print(f"rank {rank}: done\n", end="", flush=True)
