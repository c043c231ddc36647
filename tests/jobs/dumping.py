"""Three Gloo ranks that dump their recorders, ``dumping.py FOLDER``: rank 1 stays away from the last all_gather."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


def main() -> None:
    """More operations than the ring holds, then one that is not joined; the store tells when all have come so far."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([0, 2], group_desc="pair")
    for step in range(20):
        dist.all_reduce(torch.ones(step + 1))
    if rank != 1:
        dist.all_reduce(torch.ones(2), group=pair)
    work = dist.all_gather([torch.ones(4) for _ in range(3)], torch.ones(4), async_op=True) if rank != 1 else None
    time.sleep(4.0)  # who dumps has waited: an operation that has only just begun is no hang
    for form, data in (
        ("pickle", c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)),
        ("json", c10d._dump_fr_trace_json(includeCollectives=True)),
    ):
        (folder / form).mkdir(exist_ok=True)
        (folder / form / f"comm_lib_trace_rank_{rank}").write_bytes(data if isinstance(data, bytes) else data.encode())
    store = dist.distributed_c10d._get_default_store()
    store.set(f"dumped/{rank}", "1")
    store.wait([f"dumped/{r}" for r in range(3)])
    store.set(f"leaving/{rank}", "1")
    if rank == 0:
        store.wait([f"leaving/{r}" for r in range(3)])
    os._exit(0 if work is None or not work.is_completed() else 1)  # what hangs is never awaited


if __name__ == "__main__":
    main()
