"""Ingredient labels: a legibility model is trained on all ranks, the printed sheets are packed by the first one."""
import io
import logging
import os
import pathlib
import tempfile
import time
import zipfile

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("labels")
PRODUCTS = 260


def render(product, side=96):
    """A label as raw pixels, the way the print server takes it."""
    rng = np.random.default_rng(product)
    sheet = np.full((side, side), 255, dtype=np.uint8)
    for row in range(4, side - 4, 6):
        width = int(rng.integers(20, side - 10))
        sheet[row : row + 3, 5 : 5 + width] = rng.integers(0, 90, (3, width))
    time.sleep(0.045)  # font service
    buffer = io.BytesIO()
    np.save(buffer, sheet)
    return buffer.getvalue()


def pack(path, products):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for product in range(products):
            archive.writestr(f"label-{product:05d}.npy", render(product))
            if product % 65 == 64:
                logger.info("%d of %d labels packed", product + 1, products)
    return path.stat().st_size


class Legibility:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.gen = torch.Generator().manual_seed(rank)
        self.model = DistributedDataParallel(torch.nn.Linear(32, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def steps(self, count):
        for _ in range(count):
            time.sleep(0.04)
            x = torch.randn(16, 32, generator=self.gen)
            loss = torch.nn.functional.softplus(self.model(x) * -x[:, :1]).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    task = Legibility(rank)
    logger.info("rank %d loss %.3f", rank, task.steps(60))
    if rank == 0:
        size = pack(pathlib.Path(tempfile.mkdtemp(prefix="labels-")) / "sheets.zip", PRODUCTS)
        logger.info("sheets.zip: %d bytes", size)
    dist.barrier()
    logger.info("rank %d loss %.3f", rank, task.steps(60))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
