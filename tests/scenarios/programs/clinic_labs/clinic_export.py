"""Ocean model emulator: rank 0 writes the forecasts of all ranks to a slow archive, in records."""

import os
import struct
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn


class Archive:
    """Tape-like: a record at a time, each one synced before the next is accepted."""

    def __init__(self, path, rate=120_000):
        self.file, self.rate = open(path, "wb"), rate

    def write(self, array):
        payload = zlib.compress(array.numpy().tobytes(), 6)
        for start in range(0, len(payload), 16_384):
            record = payload[start : start + 16_384]
            self.file.write(struct.pack("<II", len(record), zlib.crc32(record)) + record)
            self.file.flush()
            os.fsync(self.file.fileno())
            time.sleep(len(record) / self.rate)

    def close(self):
        self.file.close()


def train(net, rank, world, steps=60):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        sea = torch.randn(4, 1, 48, 48, generator=generator)
        optimizer.zero_grad()
        (net(sea) - sea.roll(1, -1)).square().mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.GELU(), nn.Conv2d(16, 1, 5, padding=2))
    path = Path(tempfile.gettempdir()) / f"ocean-{os.environ['MASTER_PORT']}.arc"
    for round_number in range(2):
        train(net, rank, world)
        with torch.no_grad():
            forecast = net(torch.randn(80, 1, 48, 48)).squeeze(1)
        parts = [torch.empty_like(forecast) for _ in range(world)]
        dist.all_gather(parts, forecast)
        if rank == 0 and round_number == 1:
            archive = Archive(path)
            for part in parts:
                archive.write(part)
            archive.close()
            print(f"{path.stat().st_size} bytes archived", flush=True)
        dist.broadcast(parts[0], src=0)
    path.unlink(missing_ok=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
