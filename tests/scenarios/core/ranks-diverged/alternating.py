"""An actor and a learner, two worlds on one machine that take turns: one plays while the other awaits its games."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
PLAYERS = 3


def exchange_group(address: str, place: int) -> dist.ProcessGroup:
    """Learner 0 and all players."""
    store, place, size = next(rendezvous(address, place, 1 + PLAYERS, timeout=LIMIT))
    prefixed = PrefixStore("games", store)
    group, _ = _new_process_group_helper(size, place, [], "gloo", prefixed, group_name="games", timeout=LIMIT)
    _world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


def play(rank: int, ports: tuple[int, int], options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{ports[1]}", rank=rank, world_size=PLAYERS, timeout=LIMIT)
    games = exchange_group(options.address, 1 + rank)
    weights = torch.zeros(16)
    for turn in range(options.turns):
        dist.broadcast(weights, src=0, group=games)
        moves = torch.zeros(16)
        until = time.monotonic() + options.seconds
        while time.monotonic() < until:
            moves += torch.tanh(weights + torch.randn(16))
            time.sleep(0.01)
        resigned = options.fault == "resigns" and turn == 2 and rank == 1
        if not resigned:
            dist.all_reduce(moves)
        dist.barrier(group=games)
    dist.destroy_process_group()


def learn(rank: int, ports: tuple[int, int], options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=2, timeout=LIMIT)
    games = exchange_group(options.address, 0) if rank == 0 else None
    weights = torch.zeros(16)
    for _ in range(options.turns):
        if games is not None:
            dist.broadcast(weights, src=0, group=games)
            dist.barrier(group=games)
        dist.barrier()  # the games are there
        until, goes_on = time.monotonic() + options.seconds, torch.ones(1)
        while goes_on.item():
            gradient = torch.randn(16)
            dist.all_reduce(gradient)
            weights -= 0.01 * gradient
            goes_on.fill_(float(time.monotonic() < until))
            dist.broadcast(goes_on, src=0)
            time.sleep(0.01)
    dist.destroy_process_group()


def main(options: argparse.Namespace) -> None:
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(3)]
    options.address = f"tcp://127.0.0.1:{stores[2].port}"
    ports = (stores[0].port, stores[1].port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # this process keeps the stores
    worlds = [mp.spawn(world, (ports, options), nprocs=n, join=False) for world, n in ((learn, 2), (play, PLAYERS))]
    for world in worlds:
        while not world.join():
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(parser.parse_args()))
