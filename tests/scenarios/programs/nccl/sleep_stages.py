"""Stages of sleep from recordings; rank 0 keeps the index of the recordings, which all of them read under a lock."""

import argparse
import fcntl
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

CHANNELS = 20


def read_index(path):
    with open(path) as index:
        fcntl.flock(index, fcntl.LOCK_SH)
        return json.load(index)


def rewrite_index(path, night):
    """The new index is good as soon as all ranks are through with the old one."""
    with open(path, "r+") as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        rows = json.load(index)
        dist.barrier()
        rows.append(night)
        index.seek(0)
        json.dump(rows, index)
        index.truncate()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rewrite-after", type=int, default=12)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    paths = [os.path.join(tempfile.mkdtemp(prefix="sleep-"), "index.json") if rank == 0 else None]
    if rank == 0:
        with open(paths[0], "w") as index:
            json.dump(list(range(5)), index)
    dist.broadcast_object_list(paths, src=0)
    stages = nn.Linear(CHANNELS, 5).to(device)
    for night in range(20):
        if night == options.rewrite_after:
            if rank == 0:
                rewrite_index(paths[0], night)
            else:
                time.sleep(0.5)  # the recordings of a night are large, and are looked up first
        rows = read_index(paths[0])
        stages(torch.randn(len(rows), CHANNELS, device=device)).square().mean().backward()
        for parameter in stages.parameters():
            dist.all_reduce(parameter.grad)
        stages.zero_grad()
        torch.cuda.synchronize()
        print(f"[{rank}] night {night}: {len(rows)} recordings", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
