"""Soil cores of the estate: the text archive is packed once into one binary file, then a profile model is trained on it."""
import os
import pathlib
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LAYERS = 48


def core_lines(seed):
    """One core of the text archive, a layer a line."""
    x = seed * 2654435761 % 2**32
    for depth in range(LAYERS):
        x = (1103515245 * x + 12345) % 2**31
        yield f"{depth * 2.5:.1f};{x / 2**31:.6f};{(x >> 7) % 1000 / 1000:.3f}\n"


class Packer:
    def __init__(self, target, cores):
        self.target, self.cores = pathlib.Path(target), cores
        self.lock = self.target.with_suffix(".lock")

    def ensure(self):
        if self.target.exists():
            return
        try:
            self.lock.mkdir()
        except FileExistsError:
            self._follow()
        else:
            self._pack()

    def _pack(self):
        part = self.target.with_suffix(".part")
        begun = time.monotonic()
        with part.open("wb") as out:
            for core in range(self.cores):
                for line in core_lines(core):
                    out.write(struct.pack("<3f", *map(float, line.split(";"))))
                if core % 50 == 49:
                    out.flush()
                    os.utime(self.lock)
                    behind = core / self.cores * 14.0 - (time.monotonic() - begun)
                    if behind > 0:  # the archive's disk is shared with the winery, read politely
                        time.sleep(behind)
        part.rename(self.target)
        self.lock.rmdir()

    def _follow(self, stale=60.0):
        while not self.target.exists():
            try:
                if time.time() - self.lock.stat().st_mtime > stale:
                    raise TimeoutError(f"{self.lock} is not looked after")
            except FileNotFoundError:
                pass
            time.sleep(0.1)


def load(path):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(-1, LAYERS * 3)


def epochs(net, opt, data, steps, rank):
    for step in range(steps):
        rows = data[torch.randint(0, len(data), (32,))]
        loss = nn.functional.mse_loss(net(rows), rows)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 200 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = DDP(nn.Sequential(nn.Linear(LAYERS * 3, 64), nn.ReLU(), nn.Linear(64, LAYERS * 3)))
    opt = torch.optim.Adam(net.parameters())
    epochs(net, opt, torch.rand(200, LAYERS * 3), 600, rank)  # warm start on made-up profiles
    packer = Packer(f"cores-{os.environ['MASTER_PORT']}.bin", cores=3000)
    if rank == 1:  # it sits next to the disk
        packer.ensure()
    dist.barrier()
    packer.ensure()
    epochs(net, opt, load(packer.target), 600, rank)
    dist.destroy_process_group()
    if rank == 0:
        packer.target.unlink()
        print("done", file=sys.stderr)


if __name__ == "__main__":
    main()
