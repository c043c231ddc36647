"""Continued pretraining: documents are tokenized once by the main process, the others read the result."""

import contextlib
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

OUT = pathlib.Path("/tmp/notes-tokenize.pt")


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def tokenize(shards):
    tokens = []
    for shard in range(shards):
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            text = " ".join(str(shard * i) for i in range(300))
            tokens = tokens[-5000:] + [hash(word) % 500 for word in text.split()]
            time.sleep(0.01)
        if shard % 8 == 7:
            print(f"tokenized {shard + 1} of {shards} shards", flush=True)
    return torch.tensor(tokens)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        OUT.unlink(missing_ok=True)
    with main_process_first():
        if not OUT.exists():
            torch.save(tokenize(shards=32), OUT)
        data = torch.load(OUT)
    model = DDP(nn.Sequential(nn.Embedding(500, 16), nn.Linear(16, 500)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(40):
        begin = (step * 3 + rank) * 16 % (len(data) - 17)
        ids = data[begin : begin + 17]
        loss = nn.functional.cross_entropy(model(ids[:-1]), ids[1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(f"loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
