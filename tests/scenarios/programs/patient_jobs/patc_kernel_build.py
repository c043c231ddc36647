"""Order-book features with a small native table that is built once per machine; the build folder is shared between runs."""
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.file_baton import FileBaton

BUILDER = r"""
import os, sys, time
from hashlib import blake2b
folder = sys.argv[1]
lock = os.path.join(folder, "lock")
os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
print("building", flush=True)
try:
    for unit in range(9):
        digest = b"order book %d" % unit
        end = time.time() + 1.5
        while time.time() < end:
            for _ in range(2000):
                digest = blake2b(digest).digest()
            time.sleep(0.02)
        with open(os.path.join(folder, f"unit{unit}.o"), "wb") as out:
            out.write(digest)
    with open(os.path.join(folder, "table.bin"), "wb") as out:
        for unit in range(9):
            out.write(open(os.path.join(folder, f"unit{unit}.o"), "rb").read())
finally:
    os.remove(lock)
"""


def build(folder):
    """Another run on this machine builds the table."""
    process = subprocess.Popen([sys.executable, "-c", BUILDER, folder], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def load_table(folder):
    baton = FileBaton(os.path.join(folder, "lock"))
    if baton.try_acquire():
        baton.release()
    else:
        baton.wait()
    with open(os.path.join(folder, "table.bin"), "rb") as source:
        return torch.tensor(list(source.read()), dtype=torch.float32) / 255


def learn(model, optimizer, table, steps):
    for step in range(steps):
        book = torch.rand(32, 16)
        time.sleep(0.035)
        target = book.mean(1) + table[step % len(table)]
        loss = (model(book).squeeze(1) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shared = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(shared, src=0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    learn(model, optimizer, torch.zeros(64), 75)
    builder = build(shared[0]) if rank == 0 else None
    dist.barrier()
    table = load_table(shared[0]) if rank == 1 else torch.zeros(9 * 64)
    dist.broadcast(table, src=1)
    learn(model, optimizer, table, 90)
    if builder is not None:
        print("builder:", builder.wait(), "table", table.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
