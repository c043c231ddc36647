"""A rank is paused and continued three seconds later; the job goes on. Run by ``torchrun --nproc-per-node 3``.

The one who pauses is a shell that rank 1 starts, as an operator's script would do from outside.
"""

import os
import subprocess
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Some hundred short steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    values = torch.randn(1000)
    script = None
    for step in range(250):
        if rank == 1 and step == 60:
            pid = os.getpid()
            script = subprocess.Popen(["/bin/sh", "-c", f"kill -STOP {pid}; sleep 3; kill -CONT {pid}"])
        dist.all_reduce(values)
        values /= dist.get_world_size()
        time.sleep(0.02)
    if script is not None:
        script.wait()
    print(f"rank {rank} done", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
