"""Traceability records of three origins. The registry asks clients not to start their downloads together."""
import argparse
import contextlib
import hashlib
import time

import torch
import torch.distributed as dist
from torch import nn

ORIGINS = ("sidama", "tarrazu", "antigua", "mogiana")


def registry(origin, chunks=12):
    """Streams the registry's records of an origin, in chunks."""
    seed = int(hashlib.sha256(origin.encode()).hexdigest()[:8], 16)
    gen = torch.Generator().manual_seed(seed)
    for _ in range(chunks):
        time.sleep(0.08)
        yield torch.randn(50, 16, generator=gen)


@contextlib.contextmanager
def timed(label):
    started = time.monotonic()
    yield
    print(f"{label}: {time.monotonic() - started:.1f} s", flush=True)


def my_turn(index, gap):
    """Waits for this client's slot, and counts down to it."""
    start = time.monotonic() + index * gap
    while (rest := start - time.monotonic()) > 0:
        if int(rest) % 2 == 0:
            print(f"client {index}: slot opens in {rest:.0f} s", flush=True)
        time.sleep(min(rest, 1.0))


def pull(index, gap):
    my_turn(index, gap)
    with timed(f"records of {ORIGINS[index]}"):
        return torch.cat(list(registry(ORIGINS[index])))


def fit(model, optimizer, records, steps):
    for step in range(steps):
        rows = records[torch.randint(0, len(records), (32,))]
        code = torch.linalg.svdvals(torch.randn(8, 120, 120)).mean() / 20
        loss = (model(rows) * code - rows).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gap", type=float, default=4.5, help="seconds between the starts of two clients")
    gap = parser.parse_args().gap
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    warm = fit(model, optimizer, torch.randn(200, 16), 70)
    records = pull(rank, gap)
    dist.barrier()
    tuned = fit(model, optimizer, records, 90)
    if rank == 0:
        print(f"warm-up {warm:.3f}, tuned {tuned:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
