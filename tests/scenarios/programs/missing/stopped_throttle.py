"""A guard process that keeps the machine cool stops a rank and forgets to continue it.

The guard is a child of the program, as are the ranks; it stops (SIGSTOP) whichever rank has used more than its share of
CPU time, and its own "continue" never comes as it exits first.
"""

import os
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

RANKS = 3


def guard(pids: "mp.SimpleQueue[tuple[int, int]]") -> None:
    """Wait for the pids of all ranks, look at them for a while, and stop the one that runs hot."""
    known = dict(pids.get() for _ in range(RANKS))
    time.sleep(2.0)
    hottest = max(known)
    os.kill(known[hottest], signal.SIGSTOP)
    print(f"guard: rank {hottest} runs hot, paused", flush=True)


def train(rank: int, port: int, pids: "mp.SimpleQueue[tuple[int, int]]") -> None:
    """Steps of some milliseconds each."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(32, 32))
    pids.put((rank, os.getpid()))
    for _ in range(100_000):
        loss = model(torch.randn(4, 32)).relu().sum()
        loss.backward()
        time.sleep(0.01)


def main() -> None:
    """Start the guard and the ranks."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    pids = context.SimpleQueue()
    watching = context.Process(target=guard, args=(pids,))
    ranks = [context.Process(target=train, args=(rank, port, pids)) for rank in range(RANKS)]
    for process in (watching, *ranks):
        process.start()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
