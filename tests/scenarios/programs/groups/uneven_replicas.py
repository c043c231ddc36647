"""Tensor x data parallelism in which one replica has longer sequences and one tensor rank a slow disk: slow, never stuck."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    """Train for a while."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    replica, shard = mesh.get_coordinate()
    log = Path(tempfile.mkdtemp()) / "log"
    model = nn.LSTM(8, 16)
    for step in range(14):
        length = 1200 if replica == 1 else 60
        outputs, _ = model(torch.randn(length, 4, 8))
        partial = outputs.mean(dim=(0, 1)).detach()
        dist.all_reduce(partial, group=mesh.get_group("tensor"))
        outputs.square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
        if (replica, shard) == (0, 1):
            log.write_text(f"{step}\n")
            time.sleep(1.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
