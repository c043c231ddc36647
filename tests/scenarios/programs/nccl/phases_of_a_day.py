"""A job with long phases: kernels that take seconds, files that are read whole, groups that are idle meanwhile."""

import argparse
import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SECOND = 1_000_000_000  # of the device's clock


def read_archive(seconds):
    """A file that is read and checked, block by block."""
    path = os.path.join(tempfile.mkdtemp(prefix="archive-"), "day.tar")
    with open(path, "wb") as archive:
        archive.truncate(1 << 30)
    digest, end = hashlib.blake2b(), time.monotonic() + seconds
    with open(path, "rb") as archive:
        while time.monotonic() < end:
            digest.update(archive.read(1 << 22) or archive.seek(0).to_bytes(1, "big"))
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=["kernels", "one-kernel", "archive", "one-archive", "validation"])
    parser.add_argument("--seconds", type=float, default=9.0)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, phase = dist.get_rank(), options.phase
    reports = dist.new_group()
    model = DistributedDataParallel(nn.Linear(100, 100).to(device), device_ids=[device.index])
    count = torch.ones(1, device=device)
    dist.all_reduce(count, group=reports)
    for step in range(30):
        if step == 15 and (phase == "kernels" or (phase == "one-kernel" and rank == 1)):
            torch.cuda._sleep(int(options.seconds * SECOND))
        if step == 15 and (phase == "archive" or (phase == "one-archive" and rank == 1)):
            read_archive(options.seconds)
        loss = model(torch.randn(16, 100, device=device)).square().mean()
        loss.backward()
        model.zero_grad()
        print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
        if step == 20 and phase == "validation":
            if rank == 0:
                end = time.monotonic() + options.seconds
                while time.monotonic() < end:
                    model.module(torch.randn(64, 100, device=device)).sum().item()
            dist.barrier()
    dist.all_reduce(count, group=reports)
    print(f"[{rank}] {count.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
