"""Fine-tuning from a model hub: the main process downloads first, under a lock, the others take the cache."""

import contextlib
import logging
import os
import pathlib
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

CACHE = pathlib.Path("/tmp/notes-hub")
log = logging.getLogger("hub")
PREFETCH = """
import os, sys, time
lock, target = sys.argv[1:]
os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
for part in range(60):
    time.sleep(0.5)
open(target, "w").write("{}")
os.unlink(lock)
"""


@contextlib.contextmanager
def file_lock(path):
    """One download at a time on this machine."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.2)
    try:
        yield
    finally:
        os.unlink(path)


def snapshot_download(name, seconds=0.5):
    target = CACHE / f"{name}.pt"
    with file_lock(CACHE / f".lock-{name}"):
        if not target.exists():
            time.sleep(seconds)
            torch.save(nn.Linear(16, 16).state_dict(), target)
    return target


def warm_up(name):
    """A separate process starts with the download, while this one imports the rest."""
    command = [sys.executable, "-S", "-c", PREFETCH, str(CACHE / f".lock-{name}"), str(CACHE / f"{name}.json")]
    try:
        subprocess.run(command, timeout=4, check=True)
    except subprocess.TimeoutExpired:
        log.warning("%s is not there yet, going on", name)


@contextlib.contextmanager
def main_process_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name = "tiny-base"
    if rank == 0:
        CACHE.mkdir(exist_ok=True)
        for old in CACHE.iterdir():
            old.unlink()
        warm_up(name)
    with main_process_first(rank):
        weights = snapshot_download(name)
    model = nn.Linear(16, 16)
    model.load_state_dict(torch.load(weights))
    for _ in range(100):
        loss = model(torch.randn(4, 16)).pow(2).mean()
        dist.all_reduce(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
