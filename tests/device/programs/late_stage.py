"""``late_stage.py FOLDER``: three replicas of a pipeline of two stages on NCCL; rank 3 computes longer while FOLDER has ``slow``.

The second stage has more work than the first, by design. Each rank writes what its recorder holds to FOLDER's ``dumps``, once
there is such a folder. ``stop`` in FOLDER ends the job.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_nccl_trace

MS = 1_000_000  # cycles of the simulated device
MICRO_BATCHES = 2

folder = Path(sys.argv[1])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
stage, partner = rank % 2, rank ^ 1
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl")
pipelines = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
replicas = [dist.new_group(list(range(first, size, 2))) for first in (0, 1)]
sent, received, gradients = (torch.ones(64, device="cuda") for _ in range(3))
loss, asked = torch.ones(1, device="cuda"), torch.zeros(2)


def exchange(way) -> None:
    """Send to the other stage, or receive from it."""
    tensor = sent if way is dist.isend else received
    for work in dist.batch_isend_irecv([dist.P2POp(way, tensor, partner, pipelines[rank // 2])]):
        work.wait()


def dump_once(path: Path) -> None:
    if not path.exists():
        path.with_suffix(".part").write_bytes(_dump_nccl_trace(True, False, False))
        path.with_suffix(".part").rename(path)


for step in range(100_000):
    slow = rank == 3 and (folder / "slow").exists()
    for _ in range(MICRO_BATCHES):
        if stage == 0:
            torch.cuda._sleep(20 * MS)
            exchange(dist.isend)
            exchange(dist.irecv)
        else:
            exchange(dist.irecv)
            torch.cuda._sleep((50 if slow else 30) * MS)
            exchange(dist.isend)
    dist.all_reduce(gradients, group=replicas[stage])
    dist.all_reduce(loss)
    torch.cuda.synchronize()
    asked.copy_(torch.tensor([float((folder / name).exists()) for name in ("stop", "dumps")]))
    dist.all_reduce(asked)  # all stop, and dump, after the same step
    if asked[0]:
        break
    if asked[1]:
        dump_once(folder / "dumps" / f"dump_{rank}")
    if rank == 0 and step % 50 == 0:
        print(f"step {step}", flush=True)
dist.destroy_process_group()
