"""Training on several nodes that goes on until a file says otherwise: ``FOLDER/hang-RANK``, ``FOLDER/fail-RANK``, ``FOLDER/end``.

Run by torchrun with any number of nodes. A rank that is to hang waits in a read that nobody answers; one that is to fail does so
once, so that it trains when it is started again.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def read_licence(folder: Path, rank: int) -> None:
    """Hang where the test says so: nobody writes into the pipe, unless the test does."""
    if (folder / f"hang-{rank}").exists():
        pipe = folder / f"pipe-{rank}"
        if not pipe.exists():
            os.mkfifo(pipe)
        with pipe.open("r+b", buffering=0) as file:
            file.read(1)


def main() -> None:
    """Steps of 50 ms, all ranks together; the first file to end the job is seen by all of them at one step."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    step = 0
    (folder / f"step-{rank}").write_text(str(step))
    (folder / f"life-{rank}").write_text(f"{os.getpid()} {dist.get_world_size()}")
    while True:
        step += 1
        read_licence(folder, rank)
        if (folder / f"fail-{rank}").exists():
            (folder / f"fail-{rank}").unlink()
            raise RuntimeError("uncorrectable memory error")
        ending = torch.tensor([float((folder / "end").exists())])
        dist.all_reduce(ending)
        if ending.item():
            break
        (folder / f"step-{rank}").write_text(str(step))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
