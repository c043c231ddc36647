"""Train an offset model and export it as correction tables for the stations' clock controllers."""
import os
import struct
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

CONTROLLERS = 200


class TableWriter:
    """A controller's table: offsets for a grid of temperatures and supply voltages, compressed, with a checksum."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, controller, weights):
        path = os.path.join(self.folder, f"controller-{controller:03d}.tab")
        base = sum(weights) / len(weights) + controller
        with open(path, "wb") as out:
            for temperature in range(-20, 40):
                row = b"".join(struct.pack("<d", base + temperature * v * 1e-3) for v in range(600))
                packed = zlib.compress(row, 9)
                out.write(struct.pack("<II", len(packed), zlib.crc32(row)) + packed)
            out.flush()
            os.fsync(out.fileno())
        time.sleep(0.04)  # the share takes some twenty files a second
        return os.path.getsize(path)


def export(model, folder):
    weights = [0.25 * (i % 7) for i, _ in enumerate(model.module.parameters())]
    writer, size = TableWriter(folder), 0
    for controller in range(CONTROLLERS):
        size += writer.write(controller, weights)
        if controller % 20 == 0:
            print(f"exported {controller}/{CONTROLLERS} tables, {size // 1024} KiB", flush=True)
    return size


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(rank)
    for phase in ("summer", "winter"):
        for step in range(80):
            x = torch.randn(30_000, 8, generator=gen)
            x = x[x[:, 1].argsort()[:64]].cuda()
            loss = (model(x) - x[:, :1]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
        if phase == "summer" and rank == 0:
            export(model, tempfile.mkdtemp(prefix="tables-"))
        dist.barrier()
        print(f"rank {rank}: {phase} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
