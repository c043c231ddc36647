"""Training waits for the export of the warehouse, which another process writes and then renames into place."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DROP = pathlib.Path(tempfile.gettempdir()) / f"drop_{os.environ.get('MASTER_PORT', '0')}"
WAREHOUSE = """
import os, sys, time
folder, parts = sys.argv[1], int(sys.argv[2])
for part in range(parts):
    time.sleep(1.5 if part else 11.0)
    with open(f"{folder}/{part}.tmp", "w") as file:
        for row in range(200):
            file.write(" ".join(str((row * k + part) % 11) for k in range(1, 6)) + chr(10))
    os.rename(f"{folder}/{part}.tmp", f"{folder}/{part}.txt")
"""


def arrival(path, limit=90.0):
    began = time.monotonic()
    while not path.exists():
        if time.monotonic() - began > limit:
            raise TimeoutError(path)
        time.sleep(0.3)
    return [[float(cell) for cell in line.split()] for line in path.read_text().splitlines()]


def main(parts=3):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    warehouse = None
    if rank == 0:
        DROP.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", WAREHOUSE, str(DROP), str(parts)]
        warehouse = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    for part in range(parts):
        table = [arrival(DROP / f"{part}.txt") if rank == 0 else None]
        dist.broadcast_object_list(table, src=0)
        for rows in torch.tensor(table[0])[rank::world].split(4):
            time.sleep(0.05)
            loss = nn.functional.mse_loss(model(rows[:, :4]), rows[:, 4:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.barrier()
    if warehouse is not None:
        print(f"warehouse {warehouse.wait(timeout=30)}, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
