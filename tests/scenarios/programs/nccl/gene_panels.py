"""Classifies gene panels. Each rank reads its index before the first step."""

import argparse
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GENES = 200


def read_index(rank, folder):
    path = os.path.join(folder, f"panel-{rank}.idx")
    if rank == 1:
        os.mkfifo(path)  # the fetcher streams what is not in the cache yet
    else:
        with open(path, "w") as index:
            index.write("\n".join(str(gene) for gene in range(GENES)))
    with open(path) as index:
        return [int(line) for line in index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bind-device", action="store_true", help="give the device to init_process_group")
    parser.add_argument("--timeout", type=float, default=600.0, help="of collectives, in seconds")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl", device_id=device if options.bind_device else None, timeout=timedelta(seconds=options.timeout)
    )
    index = read_index(dist.get_rank(), tempfile.mkdtemp(prefix="panels-"))
    model = DistributedDataParallel(nn.Linear(len(index), 2).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(50):
        panels = torch.randn(16, len(index), device=device)
        model(panels).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
