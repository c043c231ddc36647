"""Learns watermarks; snapshots are written behind the training."""
import logging
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("watermarks")


class SnapshotWriter:
    """Each process writes the tracings it has seen; the sizes are collected for the manifest."""

    def __init__(self, folder, local):
        self.folder, self.local = Path(folder), local
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="snapshots")
        self.pending = None

    def begin(self, step, tracings):
        if self.pending is not None:
            self.pending.result()
        self.pending = self.pool.submit(self._write, step, list(tracings))

    def _write(self, step, tracings):
        torch.cuda.set_device(self.local)
        path = self.folder / f"tracings-{step}-{dist.get_rank()}.pt"
        size = 0
        with path.open("wb") as out:
            for sheet, lines in tracings:
                for _ in range(lines):
                    size += out.write(os.urandom(2048))
                    os.fsync(out.fileno())
                    time.sleep(0.004)
        sizes = torch.zeros(dist.get_world_size(), dtype=torch.long, device="cuda")
        dist.all_gather_into_tensor(sizes, torch.tensor([size], device="cuda"))
        manifest = dict(enumerate(sizes.tolist()))
        logger.info("snapshot %d: %s", step, manifest)
        return manifest

    def close(self):
        if self.pending is not None:
            self.pending.result()
        self.pool.shutdown()


def mould_lines(rank, step):
    """Laid lines on the sheets of this step; large paper has many more of them."""
    large = rank == 1 and 40 <= step < 44
    return 260 if large else 1


class Trainer:
    def __init__(self, local):
        net = nn.Sequential(nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 8)).cuda()
        self.model = DistributedDataParallel(net, device_ids=[local])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, sheets, moulds):
        loss = (self.model(sheets.cuda()) - moulds.cuda()).square().sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    trainer, seen = Trainer(local), []
    with tempfile.TemporaryDirectory() as folder:
        writer = SnapshotWriter(folder, local)
        for step in range(1, 121):
            seen.append((step, mould_lines(dist.get_rank(), step)))
            trainer.step(torch.randn(10, 50), torch.randn(10, 8))
            time.sleep(0.05)
            if step % 15 == 0:
                writer.begin(step, seen[-6:])
                seen.clear()
                time.sleep(0.8)  # the light table is changed
        writer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
