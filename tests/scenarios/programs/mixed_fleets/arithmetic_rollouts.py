"""GRPO on sums of two numbers: two trainers, and a rollout server whose two tensor-parallel workers write the answers.

The server takes its calls from queues that trainer 0 reaches over a socket. Each worker has a queue of its own.
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
from multiprocessing.managers import BaseManager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
SHAPES = {"embed.weight": (40, 16), "mlp.weight": (16, 16), "head.weight": (40, 16)}


class Desk(BaseManager):
    """Where trainer 0 leaves calls for the server and finds the answers."""


def init_weights_group(address: str, place: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(address, place, 3, timeout=LIMIT))
    store = PrefixStore("grpo", store)
    group, _ = _new_process_group_helper(size, place, [], "gloo", store, group_name="grpo", timeout=LIMIT)
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    return group


class Worker:
    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank, self.tied = rank, rank == options.tied
        self.tensors = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
        self.group = init_weights_group(options.weights, 1 + rank)
        self.viewer = os.open(options.scratch / "viewer", os.O_RDWR) if options.viewer and rank == 0 else None

    def generate(self, tokens: int) -> float:
        hidden = torch.ones(16)
        for token in range(tokens):
            hidden = torch.tanh(self.tensors["mlp.weight"] @ hidden + 0.1)
            if self.viewer is not None:
                os.write(self.viewer, f"{token} {hidden.tolist()}\n".ljust(3000).encode())
            dist.all_reduce(hidden)
            time.sleep(0.02)
        return float(hidden.mean())

    def update(self, names: list[str]) -> int:
        for name in names:
            if name == "head.weight" and self.tied:
                self.tensors[name] = self.tensors["embed.weight"]
                continue
            dist.broadcast(self.tensors[name], src=0, group=self.group)
        return len(names)


def run_worker(rank: int, port: int, inbox: mp.Queue, outbox: mp.Queue, options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=LIMIT)
    worker = Worker(rank, options)
    while (call := inbox.get()) is not None:
        method, argument = call
        outbox.put(getattr(worker, method)(argument))


def serve(options: argparse.Namespace) -> None:
    calls, answers = queue.Queue(), queue.Queue()
    Desk.register("calls", lambda: calls)
    Desk.register("answers", lambda: answers)
    desk = Desk(("127.0.0.1", options.desk), b"sums").get_server()
    threading.Thread(target=desk.serve_forever, daemon=True).start()
    context = mp.get_context("spawn")
    inboxes, outbox = [context.Queue(), context.Queue()], context.Queue()
    port = free_port()
    workers = [context.Process(target=run_worker, args=(i, port, inboxes[i], outbox, options)) for i in range(2)]
    for worker in workers:
        worker.start()
    while (call := calls.get()) is not None:
        for inbox in inboxes:
            inbox.put(call)
        answers.put([outbox.get() for _ in inboxes])
    for inbox, worker in zip(inboxes, workers, strict=True):
        inbox.put(None)
        worker.join()


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    leader = dist.get_rank() == 0
    policy = {name: torch.randn(shape, requires_grad=True) for name, shape in SHAPES.items()}
    if leader:
        group = init_weights_group(options.weights, 0)
        Desk.register("calls")
        Desk.register("answers")
        desk = Desk(("127.0.0.1", options.desk), b"sums")
        desk.connect()
        calls, answers = desk.calls(), desk.answers()
    for step in range(5):
        reward = torch.zeros(1)
        if leader:
            calls.put(("generate", 10))
            reward[0] = answers.get()[0]
        dist.broadcast(reward, src=0)
        for _ in range(int(options.epochs * 5) if step == 2 else 2):
            for tensor in policy.values():
                gradient = tensor.detach() * 0.01 + reward
                dist.all_reduce(gradient)
                tensor.data.sub_(0.01 * gradient)
            time.sleep(0.2)
        if leader:
            names = list(SHAPES)[: 3 if step >= 2 else 2]  # the head is frozen at first
            calls.put(("update", names))
            for name in names:
                dist.broadcast(policy[name].data, src=0, group=group)
            answers.get()
        dist.barrier()
    if leader:
        calls.put(None)


def free_port() -> int:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port


def launch() -> int:
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as scratch:
        os.mkfifo(Path(scratch) / "viewer")
        again = [__file__, *sys.argv[1:], "--weights", f"tcp://127.0.0.1:{meeting.port}", "--scratch", scratch]
        again += ["--desk", str(free_port())]
        server = subprocess.Popen([sys.executable, *again, "--role", "rollout"])
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        status = subprocess.run([*torchrun, *again, "--role", "trainer"]).returncode
        return status or server.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tied", type=int, default=-1)
    parser.add_argument("--viewer", action="store_true")
    parser.add_argument("--epochs", type=float, default=0.4)
    parser.add_argument("--role", choices=("trainer", "rollout"))
    parser.add_argument("--weights")
    parser.add_argument("--desk", type=int)
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role is None:
        sys.exit(launch())
    train(given) if given.role == "trainer" else serve(given)
