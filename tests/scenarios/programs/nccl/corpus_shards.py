"""Tokenises a corpus on the main process, while the others wait at a barrier, and trains on it."""

import argparse
import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def tokenise(path, seconds):
    end, written = time.monotonic() + seconds, 0
    with open(path, "wb") as shards:
        while time.monotonic() < end:
            block = hashlib.sha256(str(written).encode() * 500).digest()
            written += shards.write(block)
    return written


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=14.0)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    if rank == 0:
        path = os.path.join(tempfile.mkdtemp(prefix="corpus-"), "tokens.bin")
        print(f"{tokenise(path, options.seconds)} bytes", flush=True)
    dist.barrier()
    model = DistributedDataParallel(nn.Linear(64, 64).to(device), device_ids=[device.index])
    for _ in range(60):
        model(torch.randn(8, 64, device=device)).square().mean().backward()
        model.zero_grad()
    print(f"[{rank}] done: {next(model.parameters()).sum().item():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
