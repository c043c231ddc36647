"""Two trainers and two savers: savers take each part of a checkpoint in turn, trainers wait for their receipts."""

from __future__ import annotations

import argparse
import fcntl
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist


def train(rank: int, steps: int, late: int) -> None:
    weights = torch.zeros(32)
    for step in range(steps):
        weights += 1.0
        if rank == 1 and step == late:
            time.sleep(0.5)
        dist.send(weights, dst=rank + 2)
        receipt = torch.zeros(1)
        dist.recv(receipt, src=rank + 2)  # the saver has it
        if step % 10 == 0:
            print(f"[trainer {rank}] step {step}", flush=True)


def save(rank: int, savers: dist.ProcessGroup, folder: Path, options: argparse.Namespace) -> None:
    for step in range(options.steps):
        part = torch.zeros(32)
        dist.recv(part, src=rank - 2)
        with (folder / "manifest").open("a") as manifest:
            fcntl.flock(manifest, fcntl.LOCK_EX)
            manifest.write(f"{step} {rank} {float(part.sum())}\n")
            if step == options.inside:
                dist.barrier(group=savers)  # under the lock
        if step != options.inside:
            dist.barrier(group=savers)
        dist.send(torch.ones(1), dst=rank - 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--inside", type=int, default=12)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    savers = dist.new_group([2, 3])
    folder = Path(os.environ["TMPDIR"]) / "checkpoint"
    folder.mkdir(exist_ok=True)
    dist.barrier()
    train(rank, options.steps, options.inside) if rank < 2 else save(rank, savers, folder, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
