"""Blow-end prediction for the converter with a yearly archive of heat curves, which rank 0 packs after each campaign."""
import gzip
import io
import logging
import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("archive")


class Share:
    """The archive share of the works' network. It takes less than half a megabyte a second from one client."""

    def __init__(self, path, bytes_per_s=430_000, block=16_384):
        self.file = open(path, "wb")
        self.rate, self.block = bytes_per_s, block
        self.written = 0

    def write(self, data):
        for start in range(0, len(data), self.block):
            piece = data[start:start + self.block]
            self.file.write(piece)
            self.file.flush()
            self.written += len(piece)
            time.sleep(len(piece) / self.rate)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


def heat_curve(heat, seconds=1200, signals=12):
    generator = torch.Generator().manual_seed(heat)
    return torch.randn(seconds, signals, generator=generator).cumsum(0).to(torch.float16)


def pack(path, heats):
    with Share(path) as share:
        for number, heat in enumerate(heats):
            buffer = io.BytesIO()
            with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=4) as packed:
                packed.write(heat_curve(heat).numpy().tobytes())
            share.write(buffer.getvalue())
            if number % 50 == 0:
                log.info("packed heat %d, %.1f MB so far", heat, share.written / 1e6)
    return share.written


class BlowEnd(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12 * 20, 96)
        self.head = nn.Linear(96, 2)

    def forward(self, curves):
        return self.head(torch.relu(self.encoder(curves)))


def campaign(model, optimizer, first, steps, rank):
    for step in range(steps):
        curves = torch.stack([heat_curve(first + 97 * step + 13 * rank + i) for i in range(16)]).float()
        windows = curves[:, ::60].flatten(1)
        target = curves[:, -1, :2]
        loss = nn.functional.mse_loss(model(windows.cuda()), target.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    if rank == 0:
        log.info("campaign from heat %d: %d steps", first, steps)


def main():
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DDP(BlowEnd().cuda(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    campaign(model, optimizer, 20_000, 200, rank)
    if rank == 0:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="heats"))
        log.info("archive: %.1f MB", pack(folder / "campaign.gz", range(20_000, 20_230)) / 1e6)
        shutil.rmtree(folder)
    dist.barrier()
    campaign(model, optimizer, 40_000, 200, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
