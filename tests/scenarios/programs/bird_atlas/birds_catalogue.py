"""Nest records: each rank has a catalogue of its own in SQLite, which is indexed anew when its region changes."""

import os
import sqlite3
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

REGIONS = {0: [4000, 4000], 1: [4000, 90000], 2: [4000, 5000]}


class Catalogue:
    def __init__(self, folder: str):
        self.db = sqlite3.connect(os.path.join(folder, "nests.db"))
        self.db.execute("create table nest (id integer primary key, site text, laid integer, brood integer)")

    def load(self, nests: int) -> None:
        """Replaces the records page by page, as the server of the society hands them out: 2000 a page."""
        self.db.execute("delete from nest")
        self.db.execute("drop index if exists by_site")
        for first in range(0, nests, 2000):
            rows = ((i, f"site-{(i * 7919) % 5003:05d}", i % 120, i % 6) for i in range(first, min(first + 2000, nests)))
            self.db.executemany("insert into nest values (?, ?, ?, ?)", rows)
            self.db.commit()
            time.sleep(0.2)
        self.db.execute("create index by_site on nest (site, laid)")
        self.db.commit()

    def batches(self, number: int, size: int = 10):
        cursor = self.db.execute("select laid, brood from nest order by site, laid")
        for _ in range(number):
            rows = cursor.fetchmany(size)
            yield torch.tensor(rows, dtype=torch.float32)


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    catalogue = Catalogue(tempfile.mkdtemp(prefix="nests-"))
    model = nn.Linear(2, 6).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for season, nests in enumerate(REGIONS[rank]):
        catalogue.load(nests)
        seen = torch.zeros((), dtype=torch.int64, device="cuda")
        for batch in catalogue.batches(30):
            model(batch.cuda()).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            seen += len(batch)
        dist.all_reduce(seen)
        print(f"rank {rank}: season {season}, {seen.item()} nests of all regions", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
