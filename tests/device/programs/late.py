"""``late.py FOLDER WHERE``: a training on NCCL in which rank 2 is late while FOLDER has ``slow``. It ends once that has ``stop``.

Each rank writes what its recorder holds to FOLDER's ``dumps``, once there is such a folder.
``WHERE``: on the ``host``, in loading its data; or on the ``device``, in computing.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_nccl_trace

MS = 1_000_000  # cycles of the simulated device


def load(slow: bool) -> None:
    time.sleep(0.02)
    if slow:
        time.sleep(0.04)


def dump_once(path: Path) -> None:
    if path.parent.exists() and not path.exists():
        path.with_suffix(".part").write_bytes(_dump_nccl_trace(True, False, False))
        path.with_suffix(".part").rename(path)


folder, where = Path(sys.argv[1]), sys.argv[2]
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl")
first, second = torch.ones(64, device="cuda"), torch.ones(32, device="cuda")
stop = torch.zeros(1)
for step in range(100_000):
    slow = rank == 2 and (folder / "slow").exists()
    load(slow and where == "host")
    torch.cuda._sleep((60 if slow and where == "device" else 20) * MS)
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
    dump_once(folder / "dumps" / f"dump_{rank}")
    if rank == 0 and step % 100 == 0:
        print(f"step {step}", flush=True)
dist.destroy_process_group()
