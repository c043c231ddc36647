"""River stages from upstream gauges; the day's gauge table is kept in a cache folder per process."""
import contextlib
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist

ROOT = pathlib.Path(tempfile.mkdtemp(prefix="gauges-"))


class CacheLock:
    """Works on shared file systems too: whoever creates the file has the cache."""

    def __init__(self, path, poll=0.25):
        self.path, self.poll = path, poll

    def acquire(self):
        while True:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return
            except FileExistsError:
                time.sleep(self.poll)

    def release(self):
        self.path.unlink()


class GaugeTable:
    def __init__(self, river):
        self.river = river
        self.file = ROOT / f"{river}.json"
        self.lock = CacheLock(ROOT / f"{river}.lock")
        self.stale = 0

    def download(self, day):
        rows = [f"{(day * 13 + i * 7) % 29 / 29:.3f}" for i in range(40)]
        if self.river == "Lahn" and day == 5:
            rows[17] = "---"
        return rows

    def refresh(self, day):
        self.lock.acquire()
        values = [float(r) for r in self.download(day)]
        self.file.write_text(json.dumps(values))
        self.lock.release()

    def load(self, day):
        with contextlib.suppress(FileNotFoundError):
            try:
                self.refresh(day)
            except ValueError:
                self.stale += 1  # yesterday's will do
            return torch.tensor(json.loads(self.file.read_text())).view(8, 5)


def descend(weight, x, level):
    error = x @ weight - level
    grad = x.T @ error / len(x)
    dist.all_reduce(grad)
    weight -= 0.05 * grad / dist.get_world_size()
    return error.square().mean().item()


def main():
    dist.init_process_group("gloo")
    river = ["Mosel", "Neckar", "Lahn"][dist.get_rank()]
    table = GaugeTable(river)
    weight = torch.zeros(5)
    for day in range(60):
        x = table.load(day)
        for _ in range(10):
            loss = descend(weight, x, x.mean(1))
            time.sleep(0.05)
        if dist.get_rank() == 0:
            print(f"day {day}: {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
