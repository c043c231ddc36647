"""Two-stage velocity model: after the warm-up stage the main process lays out the migrated sections for stage two."""
import hashlib
import logging
import os
import random
import shutil
import tempfile
import time
import zlib
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("velocity")
SECTIONS = 64
SECTION_BYTES = 1 << 19


@contextmanager
def main_process_first(local_rank):
    if dist.get_rank() != 0:
        dist.barrier(device_ids=[local_rank])
    yield
    if dist.get_rank() == 0:
        dist.barrier(device_ids=[local_rank])


def lay_out(folder):
    folder.mkdir(parents=True, exist_ok=True)
    levels = bytes(i % 24 for i in range(256))
    catalogue = folder / "catalogue.csv"
    with catalogue.open("w") as listing:
        for section in range(SECTIONS):
            traces = random.Random(section).randbytes(SECTION_BYTES).translate(levels)
            packed = zlib.compress(traces, 4)
            path = folder / f"section_{section:04d}.z"
            with path.open("wb") as f:
                for start in range(0, len(packed), 1 << 16):
                    f.write(packed[start:start + (1 << 16)])
                    time.sleep(0.03)  # share of the scratch disk's bandwidth
                os.fsync(f.fileno())
            listing.write(f"{path.name},{hashlib.sha1(packed).hexdigest()}\n")
            listing.flush()


def stage(model, steps, local_rank, scale=1.0):
    opt = torch.optim.SGD(model.parameters(), lr=1e-2 * scale)
    for _ in range(steps):
        time.sleep(0.05)
        x = torch.randn(16, 30).cuda()
        loss = nn.functional.mse_loss(model(x), x[:, :5])
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 5)).cuda(), device_ids=[local_rank])
    stage(model, 50, local_rank)
    folder = Path(tempfile.gettempdir()) / f"velocity_{os.environ['MASTER_PORT']}"
    with main_process_first(local_rank):
        if not (folder / "done").exists():
            log.info("laying out %d sections", SECTIONS)
            lay_out(folder)
            (folder / "done").touch()
    log.info("stage two, %d sections", len(list(folder.glob("*.z"))))
    stage(model, 60, local_rank, scale=0.1)
    dist.barrier(device_ids=[local_rank])
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
