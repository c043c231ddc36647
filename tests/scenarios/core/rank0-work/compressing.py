"""After an epoch rank 0 packs the checkpoint with ``gzip`` in a child process; the others are at the barrier.

The work is in the child: rank 0 itself waits for it. Nothing hangs. The program starts its own ranks.
"""

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def pack(folder: Path, seconds: float) -> int:
    """Compress what is in the folder, again and again as if there were many shards; returns the size."""
    until = time.monotonic() + seconds
    size = 0
    while time.monotonic() < until:
        done = subprocess.run(["gzip", "-9", "-c", str(folder / "weights.bin")], capture_output=True, check=True)
        size += len(done.stdout)
    return size


def work(rank: int, world: int, port: int) -> None:
    """One rank."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    for _ in range(20):
        model(torch.randn(8, 64)).square().mean().backward()
        time.sleep(0.02)
    if rank == 0:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "weights.bin").write_bytes(torch.randn(4_000_000).numpy().tobytes())
            print(f"packed {pack(Path(name), 14.0)} bytes", flush=True)
    dist.barrier()
    model(torch.randn(8, 64)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(3, free), nprocs=3)
