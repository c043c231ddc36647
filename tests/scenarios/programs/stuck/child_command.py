"""One rank copies its checkpoint away with a command that never ends, and waits for the command's output.

The command here is ``tail -f`` of what was to be a finished log; with a cloud copy tool that asks for credentials it is
the same. The program starts its own ranks.
"""

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def archive(checkpoint: Path) -> str:
    """Copy a checkpoint away, and return what the command said."""
    log = checkpoint.with_suffix(".log")
    log.write_text("copied\n")
    done = subprocess.run(["tail", "-f", str(log)], capture_output=True, text=True, check=True)
    return done.stdout


def work(rank: int, world: int, port: int) -> None:
    """One rank."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, world, is_master=rank == 0)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    weights = torch.randn(128)
    for step in range(1, 31):
        dist.all_reduce(weights)
        weights /= weights.norm()
        if step % 10 == 0 and rank == 1:
            path = Path(tempfile.gettempdir()) / f"weights-{port}-{step}.pt"
            torch.save(weights, path)
            print(archive(path), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(3, free), nprocs=3)
