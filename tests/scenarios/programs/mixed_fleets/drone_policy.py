"""Drones that learn to land: three trainers and two simulators, worlds that meet in files of a shared folder.

A registry beside them says which maps and winds belong to a simulator.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from multiprocessing.connection import Listener as Door
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
KEY = b"drones"


def meet(folder: Path, place: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(f"file://{folder}/between", place, 3, timeout=LIMIT))
    store = PrefixStore("policy", store)
    group, _ = _new_process_group_helper(size, place, [], "gloo", store, group_name="policy", timeout=LIMIT)
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    return group


def answer(caller: Connection, winds: dict[int, queue.Queue[str]]) -> None:
    """The registry's side of one connection: winds are those that a surveyor has published."""
    while True:
        try:
            kind, number = caller.recv()
        except EOFError:
            return
        caller.send("field" if kind == "map" else winds[number].get())


def register(door: Door, measured: int) -> None:
    winds = {number: queue.Queue() for number in range(2)}
    for number in range(measured):
        winds[number].put("north")
    while True:
        threading.Thread(target=answer, args=(door.accept(), winds), daemon=True).start()


def simulate(rank: int, options: argparse.Namespace) -> None:
    folder = options.folder
    dist.init_process_group("gloo", f"file://{folder}/simulators", rank=rank, world_size=2, timeout=LIMIT)
    registry = Client(str(folder / "registry"), authkey=KEY)
    for kind in ("map", "wind"):
        registry.send((kind, rank))
        print(f"[simulator {rank}] {kind}: {registry.recv()}", flush=True)
    if rank == 0:
        time.sleep(options.warm_up)
    group = meet(folder, 1 + rank)
    policy = torch.zeros(6, 6)
    for _ in range(options.rounds):
        dist.broadcast(policy, src=0, group=group)
        heights = torch.rand(6)
        for _ in range(10):
            heights = heights - 0.1 * torch.sigmoid(policy @ heights)
            dist.all_reduce(heights)
            heights /= 2
        dist.reduce(heights, dst=0, group=group)
    dist.destroy_process_group()


def train(rank: int, options: argparse.Namespace) -> None:
    folder = options.folder
    dist.init_process_group("gloo", f"file://{folder}/trainers", rank=rank, world_size=3, timeout=LIMIT)
    policy, heights = torch.zeros(6, 6), torch.zeros(6)
    group = meet(folder, 0) if rank == 0 else None
    for number in range(options.rounds):
        if group is not None:
            dist.broadcast(policy, src=0, group=group)
            heights.zero_()
            dist.reduce(heights, dst=0, group=group)
        dist.broadcast(heights, src=0)
        change = torch.outer(heights, torch.randn(6))
        dist.all_reduce(change)
        policy += 0.01 * change
        print(f"[trainer {rank}] round {number}: {float(heights.mean()):.3f}", flush=True)
        time.sleep(0.3)
    dist.destroy_process_group()


def launch(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch, Door(str(Path(scratch) / "registry"), authkey=KEY) as door:
        threading.Thread(target=register, args=(door, options.measured), daemon=True).start()
        again = [sys.executable, __file__, *sys.argv[1:], "--folder", scratch]
        simulators = subprocess.Popen([*again, "--role", "simulators"])
        subprocess.run([*again, "--role", "trainers"], check=True)
        simulators.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--measured", type=int, default=2)
    parser.add_argument("--warm-up", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--role", default="")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "trainers":
        mp.spawn(train, (given,), nprocs=3)
    elif given.role:
        mp.spawn(simulate, (given,), nprocs=2)
    else:
        launch(given)
