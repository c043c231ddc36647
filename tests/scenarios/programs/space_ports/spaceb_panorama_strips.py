"""Depth from mastcam panorama strips. Strips are rectified once and kept in a cache folder next to the run."""
import hashlib
import logging
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.file_baton import FileBaton

logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
log = logging.getLogger("strips")


def raw_strip(sol, rank):
    gen = torch.Generator().manual_seed(1000 * rank + sol)
    strip = torch.rand(8, 64, generator=gen)
    if (rank, sol) == (1, 27):
        strip[:, 20:] = 1.0  # low sun
    return strip


def rectify(strip):
    """Undo the lens (a few passes of a shift and blend), refuse what is burnt out."""
    if (strip >= 1.0).float().mean() > 0.5:
        raise ValueError("more than half of the strip is saturated")
    for k in range(40):
        strip = 0.9 * strip + 0.1 * torch.roll(strip, 1 + k % 3, dims=1)
    return strip - strip.mean()


def cached(folder, sol, rank):
    key = hashlib.md5(f"{rank}/{sol}".encode()).hexdigest()[:12]
    path = os.path.join(folder, key + ".pt")
    if not os.path.exists(path):
        baton = FileBaton(path + ".lock")
        if baton.try_acquire():
            torch.save(rectify(raw_strip(sol, rank)), path)
            baton.release()
        else:
            baton.wait()
    return torch.load(path)


def strips(folder, sols, rank):
    last = torch.zeros(8, 64)
    for sol in range(sols):
        try:
            last = cached(folder, sol, rank)
        except ValueError as why:
            log.info("sol %d: %s, using the one before", sol, why)
        yield sol, last


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 24, 5, padding=2)
        self.depth = nn.Conv1d(24, 1, 1)

    def forward(self, strip):
        return self.depth(torch.relu(self.conv(strip.unsqueeze(0)))).squeeze()


def run(rank, sols=200, epochs=12):
    cache = tempfile.mkdtemp(prefix=f"strips-{rank}-")
    net = DistributedDataParallel(DepthNet())
    opt = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    for epoch in range(epochs):
        total = 0.0
        for sol, strip in strips(cache, sols, rank):
            column = strip.mean(dim=0)
            loss = (net(strip) - column.cumsum(0)).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += float(loss)
        if rank == 0:
            log.info("epoch %d mean depth error %.4f", epoch, total / sols)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    torch.set_num_threads(1)
    run(dist.get_rank())
    dist.destroy_process_group()
