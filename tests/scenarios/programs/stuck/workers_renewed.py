"""Every rank prepares its batches in a pool whose processes are replaced after each task, and one that dies is too.

Children come and go all the time. Run by ``torchrun --nproc-per-node 2``.
"""

import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import torch
import torch.distributed as dist


def prepare(number: int) -> list[float]:
    """One batch."""
    time.sleep(0.3)
    return [float(number)] * 16


def prepare_or_die(number: int) -> list[float]:
    """One batch, from a process that is killed on the way."""
    os.kill(os.getpid(), signal.SIGKILL)
    return [float(number)] * 16


def main() -> None:
    """Twenty batches out of the pool, then one from a pool that has to be built again."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    context = multiprocessing.get_context("fork")
    with context.Pool(1, maxtasksperchild=1) as pool:
        for number in range(20):
            batch = torch.tensor(pool.apply(prepare, (number,)))
            dist.all_reduce(batch)
    for function in (prepare_or_die, prepare):
        try:
            with ProcessPoolExecutor(1, mp_context=context) as executor:
                batch = torch.tensor(executor.submit(function, 7).result())
        except BrokenProcessPool:
            print("a worker died; once more", flush=True)
    dist.all_reduce(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
