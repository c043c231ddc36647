"""Tariff model whose archive of predictions goes to a slow disk, block by block."""

import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Archive:
    def __init__(self, name, block=64 * 1024):
        self.path = pathlib.Path(tempfile.gettempdir()) / f"{name}_{os.environ.get('MASTER_PORT', '0')}.bin"
        self.block = block

    def write(self, tensor):
        raw = memoryview(tensor.contiguous().numpy().tobytes())
        with open(self.path, "wb") as file:
            for start in range(0, len(raw), self.block):
                file.write(raw[start : start + self.block])
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.18)
        return len(raw)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank)
    for step in range(120):
        time.sleep(0.03)
        meters = torch.randn(32, 16, generator=data)
        loss = nn.functional.mse_loss(model(meters), meters[:, :4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 60:
            with torch.no_grad():
                mine = model.module(torch.randn(80_000, 16, generator=data))
            parts = [torch.empty_like(mine) for _ in range(world)] if rank == 0 else None
            dist.gather(mine, parts, dst=0)
            if rank == 0:
                print(f"archived {Archive('tariffs').write(torch.cat(parts))} bytes", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"done, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
