"""Blame goes through: ranks 0 and 1 wait for rank 2 in one group, rank 2 waits for rank 3 in another, rank 3 reads a pipe.

Run by ``torchrun --nproc-per-node 4``. Only rank 3 is to be named.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def read_batch(folder: Path, step: int) -> bytes:
    """The next batch; the fifth is a pipe nobody writes to."""
    path = folder / f"batch-{step}"
    if step == 5:
        os.mkfifo(path)
    else:
        path.write_bytes(bytes(16))
    with path.open("r+b", buffering=0) as file:
        return file.read(16)


def main() -> None:
    """Ten steps: the pipeline's last stage reads, hands over to rank 2, which works with 0 and 1."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = dist.new_group([0, 1, 2], group_desc="model")
    data = dist.new_group([2, 3], group_desc="data")
    with tempfile.TemporaryDirectory(prefix="chain-") as folder:
        for step in range(1, 11):
            if rank == 3:
                read_batch(Path(folder), step)
            if rank in (2, 3):
                dist.all_reduce(torch.ones(4), group=data)
            if rank in (0, 1, 2):
                dist.all_reduce(torch.ones(8), group=model)
            print(f"[rank {rank}] step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
