"""Converts part books to piano rolls once per machine: who comes first converts, the others wait for its lock to go."""
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
BOOKS = [f"{part}-{act}" for part in ("violin", "viola", "horn", "harp", "chorus", "tuba") for act in range(1, 5)]
CONVERTER = """
import sys, time, random
book, out = sys.argv[1:]
pen, end, rows = random.Random(book), time.monotonic() + 0.55, []
while time.monotonic() < end or len(rows) < 64:
    rows.append(bytes(pen.randrange(128) for _ in range(88)))
open(out, "wb").write(b"".join(rows[:64]))
"""


class MachineLock:
    """A folder as a lock; its time stamp is renewed while the holder is at work."""

    def __init__(self, path, stale=30.0):
        self.path, self.stale = Path(path), stale

    def try_acquire(self):
        try:
            self.path.mkdir()
            return True
        except FileExistsError:
            return False

    def renew(self):
        os.utime(self.path)

    def wait(self, poll=0.25):
        while True:
            try:
                age = time.time() - self.path.stat().st_mtime
            except FileNotFoundError:
                return
            if age > self.stale:
                raise TimeoutError(f"{self.path} has not been renewed for {age:.0f} s")
            time.sleep(poll)

    def release(self):
        self.path.rmdir()


def convert(folder, lock):
    for book in BOOKS:
        out = folder / f"{book}.roll"
        subprocess.run([sys.executable, "-c", CONVERTER, book, str(out)], check=True, timeout=60)
        lock.renew()
    (folder / "COMPLETE").touch()


def part_books(folder, rank):
    lock = MachineLock(folder / "lock")
    while not (folder / "COMPLETE").exists():
        if lock.try_acquire():
            try:
                if not (folder / "COMPLETE").exists():
                    logging.info("process %d converts %d part books", rank, len(BOOKS))
                    convert(folder, lock)
            finally:
                lock.release()
        else:
            lock.wait()
    rolls = [torch.frombuffer(bytearray((folder / f"{b}.roll").read_bytes()), dtype=torch.uint8) for b in BOOKS]
    return torch.stack(rolls).view(len(BOOKS), 64, 88).float() / 128


def fit(model, optimizer, rolls, steps):
    for step in range(steps):
        roll = rolls[torch.randint(0, len(rolls), (4,))]
        loss = nn.functional.mse_loss(model(roll)[0][:, :-1], roll[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"part-books-{os.environ['MASTER_PORT']}-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    model = DistributedDataParallel(nn.GRU(88, 88, batch_first=True))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    fit(model, optimizer, torch.rand(8, 64, 88), 120)
    rolls = part_books(folder, rank)
    loss = fit(model, optimizer, rolls, 60)
    dist.barrier()
    if rank == 0:
        logging.info("loss %.4f", loss)
        shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
