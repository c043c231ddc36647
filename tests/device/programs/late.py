"""``late.py FOLDER``: a training on NCCL in which rank 2 loads its data slowly while FOLDER has ``slow``. ``stop`` ends it."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

MS = 1_000_000  # cycles of the simulated device


def load(slow: bool) -> None:
    time.sleep(0.02)
    if slow:
        time.sleep(0.04)


folder = Path(sys.argv[1])
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl")
first, second = torch.ones(64, device="cuda"), torch.ones(32, device="cuda")
stop = torch.zeros(1)
for step in range(100_000):
    load(rank == 2 and (folder / "slow").exists())
    torch.cuda._sleep(20 * MS)
    works = [dist.all_reduce(first, async_op=True)]
    torch.cuda._sleep(10 * MS)
    works.append(dist.all_reduce(second, async_op=True))
    for work in works:
        work.wait()
    torch.cuda.synchronize()
    stop.fill_(float((folder / "stop").exists()))
    dist.all_reduce(stop)
    if stop.item():
        break
    if rank == 0 and step % 50 == 0:
        print(f"step {step}", flush=True)
dist.destroy_process_group()
