"""Two trainers of a ranker of recipes, and an engine on a machine that may be taken away: a keeper starts it anew."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
UPDATES = 8


def meet(address: str, place: int, life: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(address, place, 2, timeout=LIMIT))
    store.set_timeout(LIMIT)
    name = f"ranker{life}"
    group, _ = _new_process_group_helper(
        size, place, [], "gloo", PrefixStore(name, store), group_name=name, timeout=LIMIT
    )
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    return group


def rank_recipes(options: argparse.Namespace) -> None:
    ranker = torch.nn.Bilinear(12, 12, 1)
    group = meet(options.address, 1, options.life)
    taken = torch.zeros(1)
    while float(taken) < UPDATES - 1:
        dist.broadcast(taken, src=0, group=group)
        if options.life == 0 and float(taken) == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # the machine is taken away
        for parameter in ranker.parameters():
            dist.broadcast(parameter.data, src=0, group=group)
        for _ in range(20):
            ranker(torch.randn(4, 12), torch.randn(4, 12))


class Publisher:
    """Trainer 0's side: an engine that is lost is awaited, and gets the weights that it missed."""

    def __init__(self, address: str) -> None:
        self.address, self.life = address, 0
        self.group = meet(address, 0, 0)

    def publish(self, number: int, model: torch.nn.Module) -> None:
        while True:
            try:
                dist.broadcast(torch.tensor([float(number)]), src=0, group=self.group)
                for parameter in model.parameters():
                    dist.broadcast(parameter.data, src=0, group=self.group)
                return
            except RuntimeError as error:
                print(f"update {number}: {str(error)[:60]}; the engine is awaited", flush=True)
                self.life += 1
                self.group = meet(self.address, 0, self.life)


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    model = torch.nn.Bilinear(12, 12, 1)
    publisher = Publisher(options.address) if dist.get_rank() == 0 else None
    for number in range(UPDATES):
        for _ in range(6):
            model(torch.randn(8, 12), torch.randn(8, 12)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data.sub_(0.01 * parameter.grad)
                parameter.grad = None
            time.sleep(0.1)
        if publisher is not None:
            publisher.publish(number, model)
            print(f"update {number} is out", flush=True)
    dist.destroy_process_group()


def keep(options: argparse.Namespace) -> int:
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    again = [__file__, *sys.argv[1:], "--address", f"tcp://127.0.0.1:{meeting.port}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    trainers = subprocess.Popen([*torchrun, *again, "--role", "trainer"])
    for life in range(1 + options.spare):
        engine = subprocess.Popen([sys.executable, *again, "--role", "ranker", "--life", str(life)])
        if engine.wait() == 0:
            break
        print(f"engine {life} is gone", flush=True)
        time.sleep(1)
    return trainers.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--spare", type=int, default=1)
    parser.add_argument("--life", type=int, default=0)
    parser.add_argument("--role", default="")
    parser.add_argument("--address")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role == "":
        sys.exit(keep(given))
    train(given) if given.role == "trainer" else rank_recipes(given)
