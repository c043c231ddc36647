"""Trainers whose engine is preempted: its supervisor starts it anew, and trainer 0 makes a new group with it."""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)


def join(address: str, place: int, life: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(address, place, 2, timeout=LIMIT))
    name = f"weights-{life}"
    group, _ = _new_process_group_helper(
        size, place, [], "gloo", PrefixStore(name, store), group_name=name, timeout=LIMIT
    )
    _world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


def load_weights(options: argparse.Namespace) -> torch.nn.Module:
    with open(options.scratch / "weights.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one engine reads at a time
        return torch.nn.Linear(32, 32)


def generate(options: argparse.Namespace) -> None:
    """The engine; its first life ends after a few updates."""
    life = options.life
    weights = join(options.weights, 1, life)
    model = load_weights(options)
    for update in range(3 if life == 0 else options.updates - 3):
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0, group=weights)
        dist.barrier(group=weights)
        if options.fault == "lock" and life == 0 and update == 1:
            # A helper packs what was generated; it keeps the engine's files open when the engine is gone.
            lock = open(options.scratch / "weights.lock", "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.Popen(["sleep", "3600"], pass_fds=(lock.fileno(),))


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    rank = dist.get_rank()
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weights = None
    for update in range(options.updates):
        for _ in range(5):
            model(torch.randn(8, 32)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
        if rank == 0:
            if update in {0, 3}:
                weights = join(options.weights, 0, int(update == 3))
            for parameter in model.parameters():
                dist.broadcast(parameter.data, src=0, group=weights)
            dist.barrier(group=weights)
        dist.barrier()
        print(f"[trainer {rank}] update {update}", flush=True)
    dist.destroy_process_group()


def launch(options: argparse.Namespace) -> int:
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as scratch:
        given = ["--fault", options.fault, "--updates", str(options.updates), "--scratch", scratch]
        again = [sys.executable, __file__, *given, "--weights", f"tcp://127.0.0.1:{meeting.port}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        trainers = subprocess.Popen([*torchrun, *again[1:], "--role", "trainer"])
        for life in (0, 1):
            engine = subprocess.Popen([*again, "--role", "engine", "--life", str(life)])
            while engine.poll() is None and trainers.poll() is None:
                time.sleep(0.2)
            time.sleep(options.pause)
        return trainers.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--pause", type=float, default=3.0)
    parser.add_argument("--life", type=int, default=0)
    parser.add_argument("--role", choices=("trainer", "engine"))
    parser.add_argument("--weights", default="")
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role is None:
        sys.exit(launch(given))
    train(given) if given.role == "trainer" else generate(given)
