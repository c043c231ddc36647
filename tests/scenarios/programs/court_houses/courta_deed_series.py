"""Land registry deeds: each step reads a few deeds of a series, whose file is locked while it is read and annotated."""

import fcntl
import json
import logging
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
log = logging.getLogger(__name__)


class SeriesFile:
    """One file of deeds; the registry's indexer works on the same files, so they are locked while in use."""

    def __init__(self, path):
        self.path = path
        self.handle = None

    def lock(self):
        handle = open(self.path, "r+", encoding="utf-8")
        fcntl.flock(handle, fcntl.LOCK_EX)
        self.handle = handle

    def unlock(self):
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        self.handle.close()
        self.handle = None

    def deeds(self, first, count):
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines[first : first + count]]


class Cabinet:
    def __init__(self, folder, rank):
        self.in_use = {}
        self.files = [self.fill(folder / f"series-{rank}-{letter}.jsonl", rank, letter) for letter in "ABCD"]

    @staticmethod
    def fill(path, rank, letter):
        rows = [{"parcel": i, "area": (i * 37 + rank) % 90, "price": (i * 53) % 700} for i in range(120)]
        lines = [json.dumps(row) for row in rows]
        if rank == 2 and letter == "C":
            lines[58] = lines[58][:-9]  # the scanner's feed ended here
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def read(self, series, first, count=3):
        file = SeriesFile(self.files[series])
        file.lock()
        self.in_use[series] = file
        deeds = file.deeds(first, count)
        file.unlock()
        return torch.tensor([[deed["area"] / 90, deed["price"] / 700] for deed in deeds])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    cabinet = Cabinet(pathlib.Path(tempfile.mkdtemp(prefix="deeds-")), dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    deeds = torch.zeros(3, 2)
    pace = torch.randn(500, 500)
    for step in range(160):
        try:
            deeds = cabinet.read(series=step % 4, first=3 * (step // 4))
        except ValueError as error:
            log.info("series %s: %s; the deeds before it are used again", "ABCD"[step % 4], error)
        spread = sum((pace @ pace.roll(k, dims=0)).std() for k in range(10)) / 10
        loss = (model(deeds[:, :1]) - deeds[:, 1:]).abs().mean() + 0.0 * spread
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39 and dist.get_rank() == 0:
            log.info("step %d: error %.4f", step + 1, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
