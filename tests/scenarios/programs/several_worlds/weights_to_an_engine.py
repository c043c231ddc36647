"""Two trainers of a policy, and an engine that generates with it: trainer 0 sends it the weights over a group of their own.

The engine is no rank of the trainers' job. It is started beside them, as a scheduler would, and the group of the two is
made by a rendezvous of its own, in which its members are numbered by themselves.
"""

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


def join_group(address: str, rank: int, size: int, name: str) -> dist.ProcessGroup:
    store, rank, size = next(rendezvous(address, rank, size, timeout=LIMIT))
    store.set_timeout(LIMIT)
    group, _ = _new_process_group_helper(
        size, rank, [], "gloo", PrefixStore(name, store), group_name=name, timeout=LIMIT
    )
    _world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


def generate(options: argparse.Namespace) -> None:
    """The engine: it loads, and then takes new weights whenever they come."""
    if options.late == "start":
        time.sleep(options.seconds)
    policy = torch.nn.Linear(64, 64)
    weights = join_group(options.weights, 1, 2, "weights")
    for update in range(options.updates):
        if options.late == "update" and update == 2:
            time.sleep(options.seconds)  # a long prompt is still being answered
        for parameter in policy.parameters():
            dist.broadcast(parameter.data, src=0, group=weights)
        dist.barrier(group=weights)


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    weights = join_group(options.weights, 0, 2, "weights") if rank == 0 else None
    for update in range(options.updates):
        loss = policy(torch.randn(16, 64)).square().mean()
        loss.backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if weights is not None:
            for parameter in policy.parameters():
                dist.broadcast(parameter.data, src=0, group=weights)
            dist.barrier(group=weights)
        dist.barrier()
        print(f"[rank {rank}] update {update}: the engine has the weights", flush=True)
    dist.destroy_process_group()


def launch() -> int:
    # The controller keeps the store in which trainer 0 and the engine meet.
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = f"tcp://127.0.0.1:{meeting.port}"
    again = [__file__, *sys.argv[1:], "--weights", address]
    engine = subprocess.Popen([sys.executable, *again, "--role", "engine"])
    trainers = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *again]
    status = subprocess.run([*trainers, "--role", "trainer"]).returncode
    engine.terminate()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", choices=("start", "update"), required=True)
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--role", choices=("trainer", "engine"))
    parser.add_argument("--weights", default="")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role is None:
        sys.exit(launch())
    train(given) if given.role == "trainer" else generate(given)
