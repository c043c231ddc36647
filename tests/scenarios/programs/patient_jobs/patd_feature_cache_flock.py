"""Bird call classifier. A nightly builder shares the feature cache with the training job."""
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

BUILDER = r'''
import fcntl, json, os, sys, time, zlib
folder = sys.argv[1]
lock = open(os.path.join(folder, ".lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("building", flush=True)
index = {}
for clip in range(64):
    samples = bytes((clip * i) % 251 for i in range(4000))
    index["clip%03d" % clip] = [zlib.crc32(samples[s:s + 500]) % 1000 / 1000 for s in range(0, 4000, 500)]
    time.sleep(0.21)
with open(os.path.join(folder, "features.json"), "w") as f:
    json.dump(index, f)
'''


@contextlib.contextmanager
def locked(folder):
    with open(os.path.join(folder, ".lock"), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def start_builder(folder):
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, folder], stdout=subprocess.PIPE, text=True)
    builder.stdout.readline()
    return builder


def fit(model, optimizer, features, steps):
    labels = (features.sum(1) * 7).long() % 5
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, box = dist.get_rank(), [None]
    torch.manual_seed(rank)
    if rank == 0:
        box = [tempfile.mkdtemp(prefix="calls_")]
    dist.broadcast_object_list(box, src=0)
    folder = box[0]
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    old = fit(model, optimizer, torch.rand(64, 8), 27)
    if rank == 0:
        builder = start_builder(folder)
        with locked(folder):
            entries = len(os.listdir(folder))
            print(f"cache ready, {entries} entries", flush=True)
        builder.wait()
    dist.barrier()
    with open(os.path.join(folder, "features.json")) as f:
        features = torch.tensor(list(json.load(f).values()))
    new = fit(model, optimizer, features, 27)
    print(f"rank {rank}: {old:.3f} -> {new:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
