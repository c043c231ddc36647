"""Dates cores of peat. While gradients are reduced, rank 0 fits the ages of a bog on its host, and hands them on by a pipe."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn

LAYERS = 24


def fit(size):
    """One decomposition, in one call that leaves the interpreter to others."""
    return torch.linalg.svdvals(torch.randn(size, size, dtype=torch.float64))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=14.0, help="about so long rank 0 fits")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    path = os.path.join("/tmp", f"ages-{os.environ['TORCHELASTIC_RUN_ID']}")
    if rank == 0:
        os.mkfifo(path)
        began = time.monotonic()
        fit(600)
        size = int(600 * (options.seconds / (time.monotonic() - began)) ** (1 / 3))
    model = nn.Linear(LAYERS, 3).to(device)
    dist.barrier()
    for core in range(30):
        model(torch.randn(8, LAYERS, device=device)).square().mean().backward()
        if core == 15 and rank == 1:
            with open(path) as ages:
                print(f"[{rank}] oldest: {ages.read()}", flush=True)
        works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
        if core == 15 and rank == 0:
            oldest = fit(size)[0]
            with open(path, "w") as ages:
                ages.write(f"{oldest.item():.1f}")
        for work in works:
            work.wait()
        model.zero_grad()
    if rank == 0:
        os.unlink(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
