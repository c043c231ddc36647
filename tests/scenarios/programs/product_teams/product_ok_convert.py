"""Invoice reading: the annotations come as JSON, and a converter of the data team makes tensors of them first."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

CONVERTER = """
import json, math, struct, sys, time
source, target = sys.argv[1:]
rows = [json.loads(line) for line in open(source)]
begin = time.monotonic()
with open(target, "wb") as out:
    while time.monotonic() - begin < 11:
        out.seek(0)
        for row in rows:
            values = [math.sin(v) + math.cos(v) for v in row["box"]]
            out.write(struct.pack("<5f", *values, row["total"]))
"""


def write_annotations(path: Path, n=3000):
    import json
    import random

    chooser = random.Random(0)
    with open(path, "w") as file:
        for _ in range(n):
            row = {"box": [chooser.random() for _ in range(4)], "total": chooser.random()}
            file.write(json.dumps(row) + "\n")


def convert(source: Path, target: Path) -> Path:
    print("converting the annotations", flush=True)
    subprocess.run([sys.executable, "-c", CONVERTER, str(source), str(target)], check=True)
    return target


def read(path: Path):
    rows = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(-1, 5)
    return rows[:, :4], rows[:, 4]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shared = [None]
    if rank == 0:
        folder = Path(tempfile.mkdtemp())
        write_annotations(folder / "invoices.jsonl")
        shared[0] = str(convert(folder / "invoices.jsonl", folder / "invoices.bin"))
    dist.broadcast_object_list(shared, src=0)
    boxes, totals = read(Path(shared[0]))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(100):
        rows = torch.randint(len(boxes), (64,), generator=g)
        optimizer.zero_grad()
        loss = (model(boxes[rows]).squeeze(-1) - totals[rows]).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    if rank == 0:
        print(f"{loss.item():.4f}", os.path.getsize(shared[0]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
