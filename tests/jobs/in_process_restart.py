"""Rank 1 polls in vain, once; the in-process restart of nvidia-resiliency-ext calls the function again in the same processes.

``in_process_restart.py FOLDER PORT``: on Gloo. What that library aborts by default is NCCL's (``inprocess/abort.py``, 0.4.1), so
groups are destroyed by a finalizer. FOLDER takes a store for each call, the library's own store listens at PORT.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess

_STEPS = 5
_HANGS_AT = 2
_FOLDER, _PORT = sys.argv[1:]


class Leave(inprocess.finalize.Finalize):
    """Destroys what is left of the process groups."""

    def __call__(self, state: inprocess.state.FrozenState) -> inprocess.state.FrozenState:
        """Where they were made at all."""
        if dist.is_initialized():
            dist.destroy_process_group()
        return state


@inprocess.Wrapper(
    store_kwargs={"host_name": "127.0.0.1", "port": int(_PORT)},
    abort=None,
    finalize=Leave(),
    last_call_wait=timedelta(seconds=0.2),
)
def train(call: inprocess.CallWrapper = None) -> None:  # type: ignore[assignment]  # the wrapper fills it in
    """A few steps."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = f"file://{_FOLDER}/store-{call.iteration}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    x = torch.ones(4)
    for step in range(_STEPS):
        dist.all_reduce(x)
        while step == _HANGS_AT and call.iteration == 0 and rank == 1:
            time.sleep(0.1)
    print(f"rank {rank} finished in call {call.iteration}\n", end="", flush=True)
    dist.destroy_process_group()


train()
