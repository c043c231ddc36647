"""Tensor x data parallelism, 2 x 2: one rank's batches come through a named pipe, whose other end stops writing.

Its tensor neighbour waits for it, its data neighbour too, and the fourth waits for the one that waits.
"""

import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

BATCH = 64


def feed(path: Path, batches: int) -> None:
    """The tokenizer at the other end: it writes so many batches, and then keeps the pipe open."""
    with path.open("wb", buffering=0) as pipe:
        for _ in range(batches):
            pipe.write(os.urandom(BATCH))
        time.sleep(3600)


def main() -> None:
    """Train on bytes, each tensor group on its own half of a block."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    tensor, data = mesh.get_group("tensor"), mesh.get_group("data")
    rank = dist.get_rank()
    path = Path(tempfile.mkdtemp()) / "batches"
    os.mkfifo(path)
    threading.Thread(target=feed, args=(path, 30 if rank == 3 else 10_000), daemon=True).start()
    block = nn.Linear(BATCH, 16)
    with path.open("rb", buffering=0) as pipe:
        for _ in range(1000):
            raw = pipe.read(BATCH)
            batch = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 255
            block.zero_grad()
            half = block(batch)
            dist.all_reduce(half.detach(), group=tensor)
            half.square().sum().backward()
            for parameter in block.parameters():
                dist.all_reduce(parameter.grad, group=data)
            time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
