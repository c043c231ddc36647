"""Chess by self-play: two learners, and a hall of two players that search together and send what they have played."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from multiprocessing.synchronize import Event

import setproctitle
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
BOARD = 64


def meet(address: str, place: int, name: str) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(address, place, 2, timeout=LIMIT))
    group, _ = _new_process_group_helper(
        size, place, [], "gloo", PrefixStore(name, store), group_name=name, timeout=LIMIT
    )
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    return group


class Player:
    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank, self.options = rank, options
        self.value, self.games = torch.zeros(BOARD), torch.zeros(4, BOARD)
        self.full = 0
        if rank == 0:
            self.weights = meet(options.address, 1, "weights")
            self.uploads = meet(options.address, 1, "games")

    def search(self, depth: int) -> None:
        for game in range(4):
            for _ in range(depth):
                board = torch.rand(BOARD) * (1 + self.value)
                dist.all_reduce(board)
                self.games[game] = board / 2
            self.full += 1
            time.sleep(0.03)

    def upload(self) -> None:
        if self.rank == 0:
            dist.broadcast(self.games, src=1, group=self.uploads)
        self.full = 0

    def play(self) -> None:
        for number in range(self.options.rounds):
            depth = 12 if number == self.options.deep else 4
            self.search(depth)
            if depth > 8 and self.full >= 4:
                self.upload()  # a deep search fills the buffer
            if self.rank == 0:
                dist.broadcast(self.value, src=0, group=self.weights)
            dist.broadcast(self.value, src=0)
            if self.full:
                self.upload()


def start_player(rank: int, port: int, seated: Event, options: argparse.Namespace) -> None:
    setproctitle.setproctitle(f"chess::player_{rank}")
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=LIMIT)
    player = Player(rank, options)
    dist.barrier()
    seated.set()
    player.play()
    dist.destroy_process_group()


def share_the_machine(pids: list[int], naps: int, seated: Event) -> None:
    """The hall lends a player's core to a broadcast of the tournament, for a moment."""
    seated.wait()
    for nap in range(naps):
        time.sleep(1.0)
        os.kill(pids[1], signal.SIGSTOP)
        if nap == 2:
            return  # this broadcast has no end
        time.sleep(0.3)
        os.kill(pids[1], signal.SIGCONT)


def run_hall(options: argparse.Namespace) -> None:
    port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    seated = mp.get_context("spawn").Event()
    players = mp.spawn(start_player, (port, seated, options), nprocs=2, join=False)
    if options.naps:
        threading.Thread(target=share_the_machine, args=(players.pids(), options.naps, seated), daemon=True).start()
    while not players.join():
        pass


def learn(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    leader = dist.get_rank() == 0
    value, games = torch.zeros(BOARD), torch.zeros(4, BOARD)
    if leader:
        weights, uploads = meet(options.address, 0, "weights"), meet(options.address, 0, "games")
    for number in range(options.rounds):
        if leader:
            dist.broadcast(value, src=0, group=weights)
            dist.broadcast(games, src=1, group=uploads)
        dist.broadcast(games, src=0)
        change = (games - value).mean(0)
        dist.all_reduce(change)
        value += 0.1 * change
        print(f"[learner {dist.get_rank()}] round {number}: {float(value.mean()):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--deep", type=int, default=-1)
    parser.add_argument("--naps", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--role", default="")
    parser.add_argument("--address")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "learner":
        learn(given)
    elif given.role:
        run_hall(given)
    else:
        meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        again = [__file__, *sys.argv[1:], "--address", f"tcp://127.0.0.1:{meeting.port}", "--role"]
        hall = subprocess.Popen([sys.executable, *again, "hall"])
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        status = subprocess.run([*torchrun, *again, "learner"]).returncode
        sys.exit(status or hall.wait())
