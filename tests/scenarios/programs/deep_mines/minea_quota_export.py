"""Trains a ground-motion surrogate, exports the shaking maps to the site office in between (slow link, byte quota)."""
import contextlib
import os
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


class Quota:
    """Token bucket: the microwave link to the site office takes 1 MB/s from us."""

    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens, self.stamp = burst, time.monotonic()

    def take(self, n):
        while True:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.stamp) * self.rate)
            self.stamp = now
            if self.tokens >= n:
                self.tokens -= n
                return
            time.sleep((n - self.tokens) / self.rate)


@contextlib.contextmanager
def site_office(folder, quota):
    path = os.path.join(folder, "maps.bin")
    with open(path, "wb") as out:
        def put(block):
            quota.take(len(block))
            out.write(block)
            out.flush()

        yield put
        os.fsync(out.fileno())
    print(f"exported {os.path.getsize(path) / 1e6:.1f} MB", flush=True)


def maps(count, size=512):
    for n in range(count):
        g = torch.Generator().manual_seed(n)
        grid = torch.randint(0, 255, (size, size), dtype=torch.uint8, generator=g)
        yield zlib.compress(bytes(grid.flatten().tolist()), 1)


def export(maps_per_day):
    quota = Quota(rate=1_000_000, burst=100_000)
    with tempfile.TemporaryDirectory(prefix="office-") as folder, site_office(folder, quota) as put:
        for packed in maps(maps_per_day):
            for start in range(0, len(packed), 50_000):
                put(packed[start:start + 50_000])


def steps(model, optimizer, rank, first, last):
    for number in range(first, last):
        g = torch.Generator().manual_seed(31 * number + rank)
        source = torch.fft.rfft(torch.randn(96, 8192, generator=g)).abs()[:, :128].log1p()
        loss = model(source.to("cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0 and number % 20 == 0:
            print(f"step {number} loss {value:.3f}", flush=True)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 8)).to("cuda")
    model = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps(model, optimizer, rank, 0, 80)
    if rank == 0:
        export(maps_per_day=54)
    dist.barrier(device_ids=[local_rank])
    steps(model, optimizer, rank, 80, 140)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
