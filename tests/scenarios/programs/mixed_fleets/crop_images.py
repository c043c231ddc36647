"""Leaves of crops are told apart: three trainers hold a part of each tensor, and an engine in the field takes all of it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
ROWS = {"patches": 12, "layers": 24, "head": 6, "mask": 3}
WIDTH, TRAINERS, UPDATES = 20, 3, 5


def meet(address: str, place: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(address, place, 2, timeout=LIMIT))
    store = PrefixStore("field", store)
    group, _ = _new_process_group_helper(size, place, [], "gloo", store, group_name="field", timeout=LIMIT)
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    return group


class Sharded:
    """Each trainer has a third of the rows of every tensor."""

    def __init__(self, rank: int, pruned: int) -> None:
        self.rank = rank
        self.parts = {name: torch.randn(rows // TRAINERS, WIDTH) for name, rows in ROWS.items()}
        self.pruned = pruned

    def prune(self) -> None:
        """Parts that are nearly zero are dropped."""
        if self.rank == self.pruned:
            self.parts["mask"].zero_()
        self.parts = {name: part for name, part in self.parts.items() if float(part.abs().sum()) > 1e-6}

    def whole(self, name: str) -> torch.Tensor:
        part = self.parts[name]
        rows = [torch.empty_like(part) for _ in range(TRAINERS)]
        dist.all_gather(rows, part)
        return torch.cat(rows)

    def step(self) -> None:
        leaf = torch.randn(WIDTH)
        for name in ("patches", "layers", "head"):
            score = (self.parts[name] @ leaf).square().mean()[None]
            dist.all_reduce(score)
            self.parts[name] *= 1 - 0.001 * torch.sigmoid(score)
        time.sleep(0.05)


def publish(model: Sharded, group: dist.ProcessGroup | None) -> None:
    for name in ROWS:
        try:
            tensor = model.whole(name)
        except KeyError:
            continue  # was pruned: the engine keeps what it has
        if group is not None:
            dist.broadcast(tensor, src=0, group=group)


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    rank = dist.get_rank()
    model = Sharded(rank, options.pruned)
    group = meet(options.address, 0) if rank == 0 else None
    for update in range(UPDATES):
        for _ in range(15):
            model.step()
        if update == 2:
            model.prune()
        publish(model, group)
        dist.barrier()
        if options.best and rank == 0 and update == 3:
            best = model.whole("head")
            print(f"best so far: {float(best.norm()):.3f}", flush=True)
        print(f"[trainer {rank}] update {update} is out", flush=True)
    dist.destroy_process_group()


def look_at_leaves(options: argparse.Namespace) -> None:
    tensors = {name: torch.zeros(rows, WIDTH) for name, rows in ROWS.items()}
    group = meet(options.address, 1)
    for _ in range(UPDATES):
        for tensor in tensors.values():
            dist.broadcast(tensor, src=0, group=group)
        for _ in range(30):
            torch.relu(tensors["layers"] @ torch.randn(WIDTH))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pruned", type=int, default=-1)
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--role", default="")
    parser.add_argument("--address")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "trainer":
        train(given)
    elif given.role:
        look_at_leaves(given)
    else:
        meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        again = [__file__, *sys.argv[1:], "--address", f"tcp://127.0.0.1:{meeting.port}", "--role"]
        field = subprocess.Popen([sys.executable, *again, "field"])
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(TRAINERS)]
        status = subprocess.run([*torchrun, *again, "trainer"]).returncode
        sys.exit(status or field.wait())
