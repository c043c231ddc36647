"""Every rank has threads that wait for ever: on a lock, a queue, a pipe, an event; training does not need them."""

import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def start_idlers() -> list[object]:
    """Things that never happen, and who waits for them."""
    lock, event, jobs = threading.Lock(), threading.Event(), queue.Queue()
    lock.acquire()
    reader, writer = os.pipe()
    waits = [lock.acquire, event.wait, jobs.get, lambda: os.read(reader, 1)]
    for wait in waits:
        threading.Thread(target=wait, daemon=True).start()
    return [lock, event, jobs, writer]


def main() -> None:
    """Five hundred steps, some of two seconds."""
    dist.init_process_group("gloo")
    kept = start_idlers()
    model = DistributedDataParallel(nn.Linear(64, 64))
    for step in range(500):
        if step % 200 == 100 and dist.get_rank() == 1:
            threading.Event().wait(2.5)
        model(torch.randn(16, 64)).square().mean().backward()
        model.zero_grad()
    print(len(kept), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
