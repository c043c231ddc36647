"""Two trainers of a spam filter and an evaluator in no process group: trainer 0 awaits its verdicts by keys of a store."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

LIMIT = timedelta(minutes=10)


class Board:
    """What is written on it by one process is read by another."""

    def __init__(self, port: int, *, owner: bool = False) -> None:
        self.kept = dist.TCPStore("127.0.0.1", port, is_master=owner, wait_for_workers=False, timeout=LIMIT)

    def write(self, subject: str, words: str) -> None:
        self.kept.set(subject, words)

    def read(self, subject: str) -> str:
        return self.kept.get(subject).decode()


def evaluate(options: argparse.Namespace) -> None:
    board = Board(options.board)
    for epoch in range(6):
        weights = board.read(f"weights/{epoch}")
        if epoch == 3:
            if options.fault == "reads-samples":
                (options.scratch / "samples").read_text()
            if options.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if options.fault == "long-evaluation":
                time.sleep(12)
            if options.fault == "skips":
                continue
        board.write(f"verdict/{epoch}", f"{len(weights)}")
    board.read("the end")


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    rank, model = dist.get_rank(), torch.nn.Linear(12, 2)
    board = Board(options.board) if rank == 0 else None
    for epoch in range(6):
        for _ in range(5):
            model(torch.randn(8, 12)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data.sub_(0.01 * parameter.grad)
                parameter.grad = None
            time.sleep(0.05)
        if board is not None:
            board.write(f"weights/{epoch}", str(model.weight.tolist()))
            print(f"epoch {epoch}: {board.read(f'verdict/{epoch}')}", flush=True)
    dist.destroy_process_group()


def keep(options: argparse.Namespace) -> int:
    owner = Board(0, owner=True)
    os.mkfifo(options.scratch / "samples")
    again = [__file__, *sys.argv[1:], "--board", str(owner.kept.port)]
    evaluator = subprocess.Popen([sys.executable, *again, "--role", "evaluator"])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    status = subprocess.run([*torchrun, *again, "--role", "trainer"]).returncode
    evaluator.kill()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--role", default="")
    parser.add_argument("--board", type=int)
    parser.add_argument("--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")))
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "":
        sys.exit(keep(given))
    train(given) if given.role == "trainer" else evaluate(given)
