"""Land cover of orthophotos above the tree line. One process per card, started here without a launcher:

    python trailb_orthophoto_spawn.py
"""
import multiprocessing
import os
import signal
import socket
import sys
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn

torch.backends.cudnn.enabled = False

WORLD = 3
SHEETS = {
    # valley: (tile edge, tiles of the sheet)
    "oetztal": (192, 12),
    "zillertal": (384, 400),
    "stubai": (192, 16),
}


class Allowance:
    """The queue gives each process a fixed share of the node's memory and ends what goes beyond it. So do we."""

    def __init__(self, mebibytes):
        self.limit = mebibytes << 20
        self.held = 0

    def charge(self, array):
        self.held += array.numel() * array.element_size()
        if self.held > self.limit:
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)


class Mosaic:
    def __init__(self, valley, allowance):
        self.edge, self.count = SHEETS[valley]
        self.allowance = allowance
        self.tiles = OrderedDict()
        self.generator = torch.Generator().manual_seed(self.count)

    def tile(self, number):
        number %= self.count
        if number not in self.tiles:
            raw = torch.rand(4, self.edge, self.edge, generator=self.generator)
            spectrum = torch.fft.fft2(raw)
            spectrum[:, self.edge // 8 : -self.edge // 8] = 0
            self.tiles[number] = torch.fft.ifft2(spectrum).real.contiguous()
            self.allowance.charge(self.tiles[number])
        return self.tiles[number]

    def windows(self, number):
        tile = self.tile(number)
        ndvi = (tile[3] - tile[0]) / (tile[3] + tile[0] + 1e-3)
        bands = torch.cat([tile, ndvi[None]])
        for _ in range(4):
            bands = nn.functional.avg_pool2d(bands[None], 5, 1, 2)[0]
        return bands.unfold(1, 24, 24).unfold(2, 24, 24).reshape(5, -1, 24 * 24)[:, :32].permute(1, 0, 2).flatten(1)


def average(parameters):
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.grad.copy_(flat[start:stop].view_as(parameter))
        start = stop


def work(rank, port):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD)
    )
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5 * 24 * 24, 32), nn.ReLU(), nn.Linear(32, 7)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    mosaic = Mosaic(list(SHEETS)[rank], Allowance(mebibytes=128))
    for step in range(1000):
        windows = mosaic.windows(step)
        cover = torch.arange(len(windows)) % 7
        loss = nn.functional.cross_entropy(model(windows.cuda()), cover.cuda())
        optimizer.zero_grad()
        loss.backward()
        average(list(model.parameters()))
        optimizer.step()
        if step % 10 == 0:
            print(f"[{list(SHEETS)[rank]}] step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    team = [context.Process(target=work, args=(rank, port), name=f"ortho-{rank}") for rank in range(WORLD)]
    for process in team:
        process.start()
    for process in team:
        process.join()
