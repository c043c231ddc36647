"""Covariances of membrane wear features: gathered from all trains, then factored and stored by the first one."""
import logging
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("wear")


@contextmanager
def session():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


class Collector:
    def __init__(self, rank, size=160):
        self.rank, self.size = rank, size
        self.gram = torch.zeros(size, size, device="cuda", dtype=torch.float64)
        self.rows = torch.zeros(1, device="cuda", dtype=torch.int64)
        self.gen = torch.Generator().manual_seed(rank)

    def collect(self, batches):
        for _ in range(batches):
            x = torch.randn(3000, self.size, generator=self.gen, dtype=torch.float64)
            local = (x.T @ x).cuda()
            dist.all_reduce(local)
            self.gram.add_(local)
            self.rows.add_(3000)
            torch.cuda.synchronize()

    def teardown(self, folder, vessels):
        if self.rank == 0:
            base = self.gram.cpu()
            for number in range(vessels):
                self.factor(base, number, folder)
                log.info("vessel %d of %d stored", number + 1, vessels)
        dist.all_reduce(self.rows)
        return int(self.rows.item())

    def factor(self, base, number, folder):
        """Resampled eigenvalues of one vessel, as many resamples as fit in its share of time."""
        kept, until = [], time.monotonic() + 0.65
        shape = torch.eye(self.size, dtype=torch.float64) * (1 + number)
        while time.monotonic() < until:
            noise = torch.randn(self.size, self.size, generator=self.gen, dtype=torch.float64)
            kept.append(torch.linalg.eigvalsh(shape + noise @ noise.T))
        torch.save({"values": torch.stack(kept), "of": base.shape}, folder / f"vessel-{number}.pt")


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    with session() as (rank, world), tempfile.TemporaryDirectory() as folder:
        collector = Collector(rank)
        collector.collect(90)
        rows = collector.teardown(Path(folder), vessels=22)
        log.info("rank %d of %d: %d rows in all", rank, world, rows)
        collector.collect(40)


if __name__ == "__main__":
    main()
