"""A worker of a process pool is killed while it holds a task; the pool starts a new one, and the task is lost.

``multiprocessing.Pool`` does not notice (``concurrent.futures`` does), so ``map`` never returns. The worker kills itself
as the kernel's memory killer would. Run by ``torchrun --nproc-per-node 3``.
"""

import multiprocessing
import os
import signal

import torch
import torch.distributed as dist


def features(number: int) -> list[float]:
    """The features of one clip; there is one that is far too long for this machine."""
    if number == 23:
        os.kill(os.getpid(), signal.SIGKILL)
    return [number / 10, (number % 7) / 7]


def extract(rank: int, world: int) -> torch.Tensor:
    """The features of this rank's clips."""
    clips = list(range(60))[rank::world]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pool.map(features, clips, chunksize=2)
    return torch.tensor(rows)


def main() -> None:
    """Extract, then normalise over all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows = extract(dist.get_rank(), dist.get_world_size())
    moments = torch.stack([rows.sum(0), rows.square().sum(0)])
    dist.all_reduce(moments)
    print(moments, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
