"""One rank ends early, and at its exit ``multiprocessing`` joins the feeder thread of a queue nobody reads.

Python says it in its guidelines ("joining processes that use queues"); the process does not end. Run by
``torchrun --nproc-per-node 2``.
"""

import multiprocessing
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> int:
    """Train until this rank's loss is good; samples go to a queue for a viewer that was never started."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    viewer: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
    model = DistributedDataParallel(torch.nn.Linear(40, 40))
    for step in range(500):
        output = model(torch.randn(64, 40) * (0.01 if rank == 0 and step > 30 else 1.0))
        loss = output.square().mean()
        if loss.item() < 0.05:
            print(f"[rank {rank}] good enough at step {step}", flush=True)
            return 0
        loss.backward()
        viewer.put(output.detach().flatten().tolist())
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
