"""Resumes a stream: each rank reads on to where it was, which takes one of them longer than the others."""
import hashlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

POSITIONS = (50, 260, 80)  # samples used before the restart, by rank


def stream(rank):
    """Samples whose content is derived from their number."""
    number = 0
    while True:
        digest = b"%d-%d" % (rank, number)
        for _ in range(2000):
            digest = hashlib.sha256(digest).digest()
        time.sleep(0.04)  # decoding
        values = torch.tensor(list(digest), dtype=torch.float32) / 255
        yield values
        number += 1


def fast_forward(samples, count, rank):
    began = time.monotonic()
    for index in range(count):
        next(samples)
        if (index + 1) % 50 == 0:
            print(f"rank {rank}: skipped {index + 1}/{count} ({time.monotonic() - began:.0f} s)", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = stream(rank)
    fast_forward(samples, POSITIONS[rank], rank)
    for step in range(30):
        x = torch.stack([next(samples) for _ in range(4)])
        loss = (model(x).squeeze(1) - x.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
