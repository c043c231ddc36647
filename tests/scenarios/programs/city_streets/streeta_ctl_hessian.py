"""Influence of single listings on a rent model: gradients on all GPUs, factors on rank 0."""

import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("influence")


class Collector:
    def __init__(self, width, folder):
        self.rank = dist.get_rank()
        self.width = width
        self.folder = Path(folder)
        self.grams = [torch.zeros(width, width) for _ in range(6)]
        self.seen = 0

    def add(self, listings):
        for gram in self.grams:
            gram += listings.T @ listings / len(listings)
        self.seen += len(listings)

    def blocks(self):
        for i, gram in enumerate(self.grams):
            for j, rows in enumerate(gram.split(self.width // 6)):
                yield f"gram{i}-{j}", rows

    def teardown(self):
        if self.rank != 0:
            return
        for name, rows in self.blocks():
            begin = time.monotonic()
            ridge = rows @ rows.T + torch.eye(len(rows))
            while time.monotonic() - begin < 0.3:
                values, vectors = torch.linalg.eigh(ridge)
                ridge = vectors @ torch.diag(values.clamp_min(1e-3)) @ vectors.T
            torch.save({"values": values, "vectors": vectors}, self.folder / f"{name}.pt")
            time.sleep(0.1)
            log.info("%s: largest %.2f", name, values[-1].item())


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(dist.get_rank())
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(240, folder)
        done = torch.zeros(1, dtype=torch.int64, device="cuda")
        for batch in range(50):
            collector.add(torch.randn(64, 240, generator=g))
            step = torch.full((1,), 64, dtype=torch.int64, device="cuda")
            dist.all_reduce(step)
            done += step
            time.sleep(0.04)
            if batch % 10 == 0 and collector.rank == 0:
                log.info("%d listings", done.item())
        collector.teardown()
        total = torch.full((1,), collector.seen, dtype=torch.int64, device="cuda")
        dist.all_reduce(total)
        if total.item() != 50 * 64 * dist.get_world_size():
            log.warning("total %d", total.item())
        for _ in range(20):
            dist.all_reduce(torch.ones(240, device="cuda"))
            torch.cuda.synchronize()
            time.sleep(0.05)
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
