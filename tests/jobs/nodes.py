"""Training on several nodes that goes on until a file says that a rank is to stop: ``FOLDER/hang-RANK`` or ``FOLDER/end``.

Run by torchrun with any number of nodes. A rank that is to hang waits in a read that nobody answers.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def read_licence(folder: Path, rank: int) -> None:
    """Hang where the test says so: nobody ever writes into the pipe."""
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
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    step = 0
    while True:
        step += 1
        read_licence(folder, rank)
        ending = torch.tensor([float((folder / "end").exists())])
        dist.all_reduce(ending)
        if ending.item():
            break
        (folder / f"step-{rank}").write_text(str(step))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
