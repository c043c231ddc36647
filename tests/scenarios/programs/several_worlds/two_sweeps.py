"""A sweep: two settings train at the same time, each a job of its own that a shared driver has started."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


def read_vocabulary(path: Path) -> list[str]:
    return path.read_text().split()


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    for step in range(options.steps):
        if step == 12 and rank == 1:
            if options.fault == "vocabulary" and options.lr > 0.02:
                read_vocabulary(options.scratch / "vocabulary")
            if options.fault == "slow" and options.lr > 0.02:
                time.sleep(4.0)
        loss = model(torch.randn(8, 32)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)
    dist.destroy_process_group()


def sweep(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        os.mkfifo(Path(scratch) / "vocabulary")
        runs = []
        for lr in ("0.01", "0.03"):
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            own = ["--lr", lr, "--fault", options.fault, "--steps", str(options.steps), "--scratch", scratch]
            runs.append(subprocess.Popen([*torchrun, __file__, *own]))
        return max(run.wait() for run in runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.add_argument("--fault", default="")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.lr is None:
        sys.exit(sweep(given))
    train(given)
