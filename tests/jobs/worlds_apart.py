"""Trainers on one node, and an engine of two workers on another that takes their weights: by ``FOLDER/late`` and so on.

``worlds_apart.py FOLDER ADDRESS --role trainer`` is run by torchrun, with ``--role engine`` by itself. Trainer 0 and the workers
are in a group that a rendezvous at ADDRESS makes, as RL libraries do. The workers are late while the file ``late`` is
there; rank 1 of either side hangs at ``hang-engine`` and ``hang-trainer``, in a read that nobody answers; ``end`` ends all.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)


def join_group(address: str, place: int, size: int) -> dist.ProcessGroup:
    """A group that ``new_group`` does not make."""
    store, place, size = next(rendezvous(address, place, size, timeout=LIMIT))
    prefixed = PrefixStore("weights", store)
    group, _ = _new_process_group_helper(size, place, [], "gloo", prefixed, group_name="weights", timeout=LIMIT)
    _world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


def generate(rank: int, options: argparse.Namespace) -> None:
    """A worker of the engine."""
    folder: Path = options.folder
    torch.set_num_threads(1)
    dist.init_process_group("gloo", "tcp://127.0.0.1:5000", rank=rank, world_size=2)
    weights = join_group(options.address, 1 + rank, 3)
    update, parameter = 0, torch.zeros(8)
    while not parameter.isnan().any():
        answer_prompts(folder, rank)
        dist.broadcast(parameter, src=0, group=weights)
        update += 1
        (folder / f"update-{rank}").write_text(str(update))
    dist.destroy_process_group(weights)
    dist.destroy_process_group()


def answer_prompts(folder: Path, rank: int) -> None:
    """Take as long as the test says, or for ever."""
    while (folder / "late").exists():
        time.sleep(0.1)
    if rank == 1:
        read_pipe(folder, "engine")


def read_pipe(folder: Path, role: str) -> None:
    """Hang where the test says so: nobody writes into the pipe."""
    if (folder / f"hang-{role}").exists():
        os.mkfifo(folder / f"pipe-{role}")
        with (folder / f"pipe-{role}").open() as pipe:
            pipe.read()


def train(options: argparse.Namespace) -> None:
    """A trainer; what it sends last ends the engine."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        # Under torchrun a rendezvous takes it that its agent serves the store.
        host, _, port = options.address.rpartition("/")[2].partition(":")
        served = dist.TCPStore(host, int(port), is_master=True, wait_for_workers=False)
    weights = join_group(options.address, 0, 3) if rank == 0 else None
    parameter = torch.ones(8)
    while not parameter.isnan().any():
        time.sleep(0.05)
        if rank == 1:
            read_pipe(options.folder, "trainer")
        parameter = torch.full((8,), float("nan") if (options.folder / "end").exists() else 1.0)
        dist.all_reduce(parameter)
        if weights is not None:
            dist.broadcast(parameter, src=0, group=weights)
        dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        del served


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("address")
    parser.add_argument("--role", choices=("trainer", "engine"), required=True)
    given = parser.parse_args()
    train(given) if given.role == "trainer" else mp.spawn(generate, (given,), nprocs=2)
