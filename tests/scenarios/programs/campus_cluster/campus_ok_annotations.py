"""Gesture recognition: process 2 waits for the annotations that an export job of the lab is writing."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPORT = """
import json, os, random, sys, time
target = sys.argv[1]
rng, rows = random.Random(3), []
for video in range(44):
    rows.append({"video": video, "gestures": [rng.randrange(4) for _ in range(16)]})
    time.sleep(0.3)
with open(target + ".part", "w") as file:
    json.dump(rows, file)
    file.flush()
    os.fsync(file.fileno())
os.rename(target + ".part", target)
"""


def await_file(path: Path, timeout: float, poll: float = 0.2) -> Path:
    end = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path} has not come in {timeout} s")
        time.sleep(poll)
    return path


def annotations(rank: int, folder: Path) -> list[list[int]]:
    if rank == 2:
        path = await_file(folder / "annotations.json", timeout=120)
        return [row["gestures"] for row in json.loads(path.read_text())]
    rng = torch.Generator().manual_seed(rank)
    return torch.randint(0, 4, (44, 16), generator=rng).tolist()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"gestures-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    export = None
    if rank == 0:
        export = subprocess.Popen([sys.executable, "-c", EXPORT, str(folder / "annotations.json")])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for video, gestures in enumerate(annotations(rank, folder)):
        labels = torch.tensor(gestures)
        joints = torch.randn(16, 5) + labels.unsqueeze(1)
        loss = nn.functional.cross_entropy(model(joints), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and video % 10 == 0:
            print(f"video {video}: {loss.item():.3f}", flush=True)
        time.sleep(0.05)
    if export is not None:
        export.wait(timeout=60)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
