"""A preparing process writes shards and, when all are there, a manifest. One rank waits for it and tells the others."""

import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PREPARE = '''
import json, os, random, sys, time
folder = sys.argv[1]
names = []
for number in range(6):
    chooser = random.Random(number)
    rows = [[chooser.random() for _ in range(8)] for _ in range(300)]
    name = "shard-%d.json" % number
    with open(os.path.join(folder, name), "w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\\n")
            file.flush()
            time.sleep(0.005)
    names.append(name)
with open(os.path.join(folder, "manifest.new"), "w") as file:
    json.dump(names, file)
os.replace(os.path.join(folder, "manifest.new"), os.path.join(folder, "manifest.json"))
'''


def wait_for_manifest(folder, limit=300.0):
    path = os.path.join(folder, "manifest.json")
    end = time.monotonic() + limit
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.25)
    with open(path) as file:
        return json.load(file)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = os.path.join(tempfile.gettempdir(), f"shards-{os.environ['MASTER_PORT']}")
    os.makedirs(folder, exist_ok=True)
    preparing, told = None, [None]
    if rank == 0:
        preparing = subprocess.Popen([sys.executable, "-c", PREPARE, folder], stdin=subprocess.DEVNULL)
        told = [wait_for_manifest(folder)]
    dist.broadcast_object_list(told, src=0)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name in told[0][rank::world]:
        with open(os.path.join(folder, name)) as file:
            rows = torch.tensor([json.loads(line) for line in file])
        for batch in rows.split(30):
            loss = nn.functional.mse_loss(model(batch[:, :7]), batch[:, 7:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
    if preparing is not None:
        preparing.wait()
        print(f"last loss {loss.item():.4f}", flush=True)
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
