"""Hangs in a wait, and says what it meets there: ``raising.py WAIT``. Rank 1 does what keeps the others waiting.

``all_reduce``, ``all_gather``, ``barrier``, ``recv``, ``wait`` (of an asynchronous operation) or ``backward`` (DDP): what they
wait in, on NCCL where there is a device. Rank 1 polls; with ``blocked`` it reads a FIFO that nobody writes to, with ``stopped``
it stops itself, with ``gil`` it is in native code that holds the interpreter. Nobody ends before all have cleaned up: torchrun
ends the others as soon as one has failed. Ranks that torchrun has restarted do not hang.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

import hangwatch


def wait_in(what: str, device: torch.device) -> None:
    """What all but rank 1 wait in."""
    x = torch.ones(4, device=device)
    if what == "all_gather":
        dist.all_gather([torch.zeros(4, device=device) for _ in range(dist.get_world_size())], x)
    elif what == "barrier":
        dist.barrier()
    elif what == "recv":
        dist.recv(x, src=1)
    elif what == "wait":
        dist.all_reduce(x, async_op=True).wait()
    else:
        dist.all_reduce(x)
    if device.type == "cuda":
        torch.cuda.synchronize()


def stay_away(how: str) -> None:
    """What rank 1 does instead."""
    if how == "blocked":
        path = Path(os.environ["SCRATCH"]) / "fifo"
        os.mkfifo(path)
        path.read_bytes()
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "gil":
        ctypes.PyDLL(None).sleep(36_000)
    while True:
        time.sleep(0.1)


def say(text: str) -> None:
    """A line in one write: both ranks print into one pipe, and torchrun's ranks are unbuffered."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@record
def main() -> None:
    """Hang."""
    what = sys.argv[1]
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    model = DistributedDataParallel(torch.nn.Linear(4, 4).to(device)) if what == "backward" else None
    wait_in("all_reduce", device)
    if what == "recv":  # the first one makes NCCL's communicator of the two ranks, which is a wait of another kind
        first = torch.ones(4, device=device)
        dist.send(first, 0) if rank == 1 else dist.recv(first, 1)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        dist.destroy_process_group()
        say(f"rank {rank} has recovered")
        return
    try:
        if rank == 1:
            stay_away(what)
        elif model is not None:
            model(torch.ones(2, 4, device=device)).sum().backward()
            if cuda:
                torch.cuda.synchronize()
        else:
            wait_in(what, device)
    except hangwatch.HangDetected as error:
        say(f"rank {rank} caught: {error}")
        raise
    finally:
        steps = [say(f"rank {rank} cleans up {step}") for step in range(3)]
        dist.destroy_process_group()
        say(f"rank {rank} has cleaned up {len(steps)}")
        scratch = Path(os.environ["SCRATCH"])
        (scratch / f"cleaned-{rank}").touch()
        while len(list(scratch.glob("cleaned-*"))) < size:
            time.sleep(0.05)


main()
