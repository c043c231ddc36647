"""Dough temperature model for the kneading line, with the batch record that food safety wants on disk."""
import json
import logging
import os
import pathlib
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("kneader")

SITES = [
    {"kneader": "K1"},
    {"kneader": "K2", "seal_every": 0.35},  # auditors want sealed parts from this one
    {"kneader": "K3"},
]


class BatchRecord:
    """Append-only record; entries are hashed in small bundles, and sealed parts never change."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.part = 0
        self.entries = []
        self.guard = threading.Lock()

    def append(self, step, temperatures):
        with self.guard:
            for k, value in enumerate(temperatures):
                self.entries.append({"step": step, "probe": k, "t": round(value, 3), "at": time.time()})
            self._write()

    def _write(self):
        path = self.folder / f"{self.name}-{self.part:04d}.json"
        with open(path, "w") as file:
            for entry in self.entries[-400:]:
                file.write(json.dumps(entry, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        for _ in range(12):  # the share needs a moment until it lists the file
            time.sleep(0.005)

    def seal(self, *_):
        with self.guard:
            self.part += 1
            self.entries.clear()


def start_sealing(record, site):
    every = site.get("seal_every")
    if every:
        signal.signal(signal.SIGALRM, record.seal)
        signal.setitimer(signal.ITIMER_REAL, 3.0, every)


def knead(rank):
    site = SITES[rank]
    record = BatchRecord(pathlib.Path(tempfile.mkdtemp(prefix="record-")), site["kneader"])
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    start_sealing(record, site)
    for step in range(1500):
        probes = 24 + 3 * torch.randn(20, 8, generator=gen)
        loss = (model(probes / 30) - probes.mean(1, keepdim=True) / 30).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        record.append(step, probes.mean(0).tolist())
        if step % 25 == 0:
            log.info("%s step %d loss %.4f part %d", site["kneader"], step, loss.item(), record.part)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    knead(dist.get_rank())
    dist.destroy_process_group()
