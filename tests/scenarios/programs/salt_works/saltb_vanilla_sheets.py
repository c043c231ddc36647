"""Vanilla pod grading; after the training the first rank writes contact sheets of the graded pods for the buyers."""
import os
import random
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn


def pods(rank, count=40, batch=8):
    gen = torch.Generator().manual_seed(rank)
    for _ in range(count):
        time.sleep(0.05)
        yield torch.rand(batch, 64, generator=gen), torch.randint(0, 3, (batch,), generator=gen)


class SheetWriter:
    def __init__(self, folder, side=160):
        self.folder, self.side = folder, side
        self.rng = random.Random(5)

    def sheet(self, number):
        pixels = self.rng.randbytes(self.side * self.side)
        packed = zlib.compress(pixels, 6)
        path = os.path.join(self.folder, f"sheet-{number:03d}.z")
        with open(path, "wb") as f:
            f.write(packed)
            f.flush()
            os.fsync(f.fileno())
        time.sleep(0.1)         # the share takes ten files a second
        return len(packed)

    def all(self, count):
        written = 0
        for number in range(count):
            written += self.sheet(number)
            if number % 20 == 19:
                print(f"sheets {number + 1}/{count}, {written >> 10} KiB", flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    net = nn.Linear(64, 3).cuda()
    model = nn.parallel.DistributedDataParallel(net, device_ids=[local])
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (pictures, grades) in enumerate(pods(dist.get_rank())):
        loss = nn.functional.cross_entropy(model(pictures.cuda()), grades.cuda())
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 10 == 0:
            print(f"[{dist.get_rank()}] step {step} loss {loss.item():.3f}", flush=True)
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory(prefix="sheets-") as folder:
            SheetWriter(folder).all(140)
    dist.barrier(device_ids=[local])
    print(f"[{dist.get_rank()}] sheets are there", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
