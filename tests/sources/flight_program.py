"""Two Gloo ranks with work in flight: ``flight_program.py FOLDER MODE``. Rank 1 stays away from the last all_reduce.

MODE ``sleep``: rank 1 sleeps. ``gil``: it sleeps in native code, holding its interpreter, once ``FOLDER/hold`` is there.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    """Finish some operations, then part ways."""
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([0, 1], group_desc="pair")
    dist.new_group([1, 0])
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(2, 2), src=1, group=pair)
    work = dist.all_reduce(torch.ones(5), async_op=True) if rank == 0 else None
    (folder / f"{rank}.new").write_text(str(os.getpid()))
    (folder / f"{rank}.new").rename(folder / str(rank))
    if rank == 1 and mode == "gil":
        while not (folder / "hold").exists():
            time.sleep(0.05)
        (folder / "held").touch()
        ctypes.PyDLL(None).sleep(3600)
    time.sleep(3600)
    print(work)


if __name__ == "__main__":
    main()
