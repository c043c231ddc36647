"""RL: trainers of a policy, and a server whose tensor-parallel workers generate with it and take its weights.

The workers are a world of their own, as those of an inference server are: the driver spawns them and sends each of them its next
command through a pipe. Trainer 0 asks the driver by a socket, and meets the workers in a group of a rendezvous of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)
KEY = b"weights"


def meet(address: str, place: int, size: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(address, place, size, timeout=LIMIT))
    prefixed = PrefixStore("policy", store)
    group, _ = _new_process_group_helper(size, place, [], "gloo", prefixed, group_name="policy", timeout=LIMIT)
    _world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


class Worker:
    """A tensor-parallel worker of the server."""

    def __init__(self, rank: int, workers: int, options: argparse.Namespace) -> None:
        self.rank, self.options = rank, options
        self.model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
        self.weights, self.updates = meet(options.weights, 1 + rank, 1 + workers), 0

    def generate(self, tokens: int) -> float:
        hidden = torch.ones(32)
        for _ in range(tokens):
            hidden = self.model(hidden).detach()
            dist.all_reduce(hidden)
            time.sleep(0.1)  # what it has written is scored
        if self.options.fault == "long-prompt" and self.updates == 2:
            time.sleep(self.options.seconds)
        return float(hidden.sum())

    def update(self, name: str) -> None:
        fault = self.options.fault if self.rank == 1 else ""
        self.updates += name == "0.weight"
        if fault == "reads-a-pipe" and self.updates == 3 and name == "1.weight":
            with open(self.options.scratch / "adapter") as adapter:  # merged into what comes
                adapter.read()
        if fault == "no-such-tensor" and name not in dict(self.model.named_parameters()):
            return
        if fault == "lock" and self.updates == 3 and name == "0.bias":
            while (self.options.scratch / "cache.lock").exists():
                time.sleep(0.2)
        if fault == "killed" and self.updates == 3 and name == "1.bias":
            if os.fork() == 0:
                time.sleep(3600)  # a tokenizer's process, which keeps what it was given
            os.kill(os.getpid(), 9)
        shape = (32, 32) if name.endswith("weight") else (32,)
        received = torch.empty(shape)
        dist.broadcast(received, src=0, group=self.weights)
        own = dict(self.model.named_parameters())
        if name in own:
            own[name].data.copy_(received)


def run_worker(rank: int, port: int, pipes: list[Connection], options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=len(pipes), timeout=LIMIT)
    worker = Worker(rank, len(pipes), options)
    while True:
        method, argument = pipes[rank].recv()
        if method == "end":
            break
        pipes[rank].send(getattr(worker, method)(argument))
    dist.destroy_process_group(worker.weights)
    dist.destroy_process_group()


def serve(options: argparse.Namespace) -> None:
    """The driver: each request goes to all workers."""
    free = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = free.port
    del free
    ends = [mp.get_context("spawn").Pipe() for _ in range(2)]
    workers = mp.spawn(run_worker, (port, [end for _, end in ends], options), nprocs=2, join=False)
    with Listener(("127.0.0.1", options.requests), authkey=KEY) as listener, listener.accept() as client:
        while True:
            method, argument = client.recv()
            for end, _ in ends:
                end.send((method, argument))
            if method == "end":
                break
            client.send([end.recv() for end, _ in ends])
    workers.join()


class Server:
    """The trainers' side of the server."""

    def __init__(self, port: int) -> None:
        for _ in range(600):
            try:
                self.connection = Client(("127.0.0.1", port), authkey=KEY)
                return
            except ConnectionRefusedError:
                time.sleep(0.1)

    def ask(self, method: str, argument: object = None) -> list[object]:
        self.connection.send((method, argument))
        return [] if method == "end" else self.connection.recv()


def send_weights(
    server: Server, policy: torch.nn.Module, group: dist.ProcessGroup, options: argparse.Namespace, step: int
) -> None:
    names = list(policy.named_parameters())
    if options.fault == "no-such-tensor" and step == 2:
        names.append(("value_head.bias", torch.nn.Parameter(torch.zeros(32))))
    for name, parameter in names:
        answer = threading.Thread(target=server.ask, args=("update", name))
        answer.start()
        if options.fault == "frozen-tensor" and step == 2 and name == "1.bias":
            parameter.requires_grad_(False)
        if parameter.requires_grad:
            dist.broadcast(parameter.data, src=0, group=group)
        answer.join()


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", timeout=LIMIT)
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    server = Server(options.requests) if rank == 0 else None
    group = meet(options.weights, 0, 3) if rank == 0 else None
    for step in range(options.steps):
        rewards = [torch.tensor(server.ask("generate", 8)[0])] if server is not None else [torch.zeros(())]
        dist.broadcast(rewards[0], src=0)
        loss = (policy(torch.randn(16, 32)).square().mean() - rewards[0].clamp(-1, 1)).square()
        loss.backward()
        for parameter in policy.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if server is not None and group is not None:
            send_weights(server, policy, group, options, step)
        dist.barrier()
        print(f"[trainer {rank}] step {step}: loss {loss.item():.3f}", flush=True)
    if server is not None:
        server.ask("end")
    dist.destroy_process_group()


def launch(options: argparse.Namespace) -> int:
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    requests = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = requests.port
    del requests
    with tempfile.TemporaryDirectory() as scratch:
        os.mkfifo(Path(scratch) / "adapter")
        (Path(scratch) / "cache.lock").touch()
        again = [__file__, *sys.argv[1:], "--weights", f"tcp://127.0.0.1:{meeting.port}", "--requests", str(port)]
        again += ["--scratch", scratch]
        server = subprocess.Popen([sys.executable, *again, "--role", "rollout"])
        trainers = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *again]
        status = subprocess.run([*trainers, "--role", "trainer"]).returncode
        server.terminate()
        return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--role", choices=("trainer", "rollout"))
    parser.add_argument("--weights", default="")
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.role is None:
        sys.exit(launch(given))
    train(given) if given.role == "trainer" else serve(given)
