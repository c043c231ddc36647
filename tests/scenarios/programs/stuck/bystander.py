"""Two ranks train in a group of their own; the third waits twelve seconds in a read for its next job. Nobody waits for it.

Run by ``torchrun --nproc-per-node 3``.
"""

import os
import threading
import time

import torch
import torch.distributed as dist


def next_job() -> bytes:
    """Read the next job from a pipe; it comes after twelve seconds."""
    reader, writer = os.pipe()
    threading.Timer(12.0, os.write, (writer, b"evaluate")).start()
    return os.read(reader, 64)


def main() -> None:
    """Train on ranks 0 and 1; rank 2 is there for evaluation."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainers = dist.new_group([0, 1])
    if dist.get_rank() == 2:
        print(next_job(), flush=True)
    else:
        weights = torch.randn(128)
        until = torch.tensor(time.monotonic() + 14.0, dtype=torch.float64)
        dist.broadcast(until, src=0, group=trainers)
        keep_on = torch.ones(1)
        while keep_on.item():
            dist.all_reduce(weights, group=trainers)
            weights /= 2
            keep_on = torch.tensor([float(time.monotonic() < until.item())])
            dist.broadcast(keep_on, src=0, group=trainers)
            time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
