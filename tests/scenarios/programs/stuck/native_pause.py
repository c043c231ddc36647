"""A native call of one rank keeps the interpreter's lock for five seconds, then all goes on.

Run by ``torchrun --nproc-per-node 3``.
"""

import ctypes

import torch
import torch.distributed as dist


def main() -> None:
    """Steps, with one long native call on rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    native = ctypes.PyDLL(None)
    values = torch.randn(64)
    for step in range(60):
        if (dist.get_rank(), step) == (0, 30):
            native.usleep(5_000_000 - 1)
        dist.all_reduce(values)
        values /= dist.get_world_size()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
