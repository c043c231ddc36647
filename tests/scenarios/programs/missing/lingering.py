"""Rank 0 stays eight seconds longer than the others: a thread of it still uploads the model after training.

Nobody waits for it: the process group is gone, and the other processes have ended. Run by
``torchrun --nproc-per-node 3``.
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def upload(weights: bytes) -> None:
    """Send the weights away, slowly."""
    for _ in range(8):
        time.sleep(1.0)
    print(f"uploaded {len(weights)} bytes", flush=True)


def main() -> None:
    """Train, say goodbye, upload."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(30):
        model(torch.randn(2, 8)).sum().backward()
        time.sleep(0.02)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        threading.Thread(target=upload, args=(model.module.weight.detach().numpy().tobytes(),)).start()


if __name__ == "__main__":
    main()
