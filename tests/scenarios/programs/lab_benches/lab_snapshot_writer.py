"""Cosmological N-body emulator; the first rank writes a large snapshot in pieces, each of which is on disk before the next."""

import os
import shutil
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class SnapshotFile:
    """Pieces with a checksum behind each. Written so that a machine that fails in between leaves whole pieces."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = open(self.path + ".partial", "wb")
        return self

    def write(self, piece):
        data = piece.numpy().tobytes()
        self.file.write(data)
        self.file.write(zlib.crc32(data).to_bytes(4, "little"))
        self.file.flush()
        os.fsync(self.file.fileno())

    def __exit__(self, kind, *_):
        self.file.close()
        if kind is None:
            os.rename(self.path + ".partial", self.path)


def particles(generator, n=256):
    time.sleep(0.02)
    position = torch.rand(n, 3, generator=generator)
    return position, torch.sin(6.2832 * position).sum(-1, keepdim=True)


def write_snapshot(folder, number, pieces=38):
    path = os.path.join(folder, f"snapshot-{number}.bin")
    with SnapshotFile(path) as file:
        for piece in range(pieces):
            file.write(torch.full((150_000,), float(piece)))
            time.sleep(0.2)  # the quota of the shared file system
    return os.path.getsize(path)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = tempfile.mkdtemp() if rank == 0 else None
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(4):
        for _ in range(25):
            position, potential = particles(generator)
            loss = (net(position) - potential).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            flat = torch.cat([p.grad.flatten() for p in net.parameters()])
            dist.all_reduce(flat)
            for p, g in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
                p.grad.copy_(g.view_as(p) / world)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
            if epoch == 2:
                print(f"  {write_snapshot(folder, epoch)} bytes", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
