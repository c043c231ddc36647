"""Training goes on while a thread saves the last checkpoint, with a group of its own to agree on when all have it."""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


class Saver:
    """Saves in the background; only one save at a time."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.group = dist.new_group()
        self.running: threading.Thread | None = None

    def save(self, step: int, state: torch.Tensor) -> None:
        if self.running is not None:
            self.running.join()
        self.running = threading.Thread(target=self.write, args=(step, state.clone()), name="saver")
        self.running.start()

    def write(self, step: int, state: torch.Tensor) -> None:
        rank = dist.get_rank()
        with self.target(step, rank).open("wb") as file:
            torch.save(state, file)
        sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, torch.tensor([float(state.numel())]), group=self.group)
        if rank == 0:
            print(f"saved step {step}", flush=True)

    def target(self, step: int, rank: int) -> Path:
        path = self.folder / f"step-{step}-rank-{rank}.pt"
        if step == self.options.at and rank == 2 and self.options.storage == "gone":
            os.mkfifo(path)  # a staging pipe, whose reader has gone
        if step == self.options.at and rank == 2 and self.options.storage == "slow":
            time.sleep(self.options.seconds)
        return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage", default="fast")
    parser.add_argument("--at", type=int, default=20)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-time", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    folder = Path(os.environ["TMPDIR"]) / "checkpoints"
    folder.mkdir(exist_ok=True)
    saver = Saver(folder, options)
    weights = torch.randn(256)
    for step in range(1, options.steps + 1):
        time.sleep(options.step_time)
        gradient = torch.randn(256)
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
        if step % options.every == 0:
            saver.save(step, weights)
    if saver.running is not None:
        saver.running.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
