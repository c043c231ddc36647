"""Reads makers' signatures. After a warm-up the second collection is tokenised by one worker for all."""
import json
import os
import random
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
SYLLABLES = ["bre", "guet", "lan", "ge", "har", "ri", "son", "tom", "pion", "be", "rthoud", "le", "roy"]


@contextmanager
def first(rank, local):
    """The given rank goes ahead; the others find its files."""
    if dist.get_rank() != rank:
        dist.barrier(device_ids=[local])
    yield
    if dist.get_rank() == rank:
        dist.barrier(device_ids=[local])


def merge_pairs(text, table):
    tokens = list(text)
    while len(tokens) > 1:
        ranked = [(table.get(a + b, 0), i) for i, (a, b) in enumerate(zip(tokens, tokens[1:]))]
        score, i = max(ranked)
        if score == 0:
            break
        tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
    return tokens


def tokenise(path, seconds):
    rng = random.Random(5)
    table = {s[:k]: k for s in SYLLABLES for k in range(2, len(s) + 1)}
    done, shown, started = 0, 0, time.monotonic()
    with open(path, "w") as out:
        while time.monotonic() - started < seconds:
            name = "".join(rng.choice(SYLLABLES) for _ in range(6))
            tokens = merge_pairs(name, table)
            out.write(json.dumps([len(t) for t in tokens]) + "\n")
            done += 1
            if done - shown >= 20000:
                shown = done
                print(f"tokenised {done} signatures", flush=True)


def collection(folder, local, reader=1, seconds=13.0):
    path = Path(folder) / "signatures.jsonl"
    with first(reader, local):
        if not path.exists():
            tokenise(path, seconds)
    with open(path) as f:
        return [json.loads(next(f)) for _ in range(200)]


def fit(model, optimizer, rows, device, steps):
    for step in range(steps):
        chosen = [rows[(step * 8 + i) % len(rows)] for i in range(8)]
        x = torch.tensor([(r + [0] * 24)[:24] for r in chosen], dtype=torch.float32)
        time.sleep(0.06)
        loss = model(x.to(device)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    places = [tempfile.mkdtemp(prefix="signatures_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(places, src=0, device=device)
    model = DistributedDataParallel(torch.nn.Linear(24, 8).to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    fit(model, optimizer, [[1, 2, 3], [4, 5]], device, 35)
    fit(model, optimizer, collection(places[0], local), device, 35)
    dist.barrier(device_ids=[local])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
