"""Two ranks that get their samples from a service beside the job, each over a UNIX socket of its own."""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import torch
import torch.distributed as dist


class Samples:
    """Shards of a data set, in an order that a journal keeps for whoever comes later."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.journal = (options.scratch / "journal").open("a")

    def fetch(self, rank: int, step: int) -> list[float]:
        if step == 3 and rank == 1 and self.options.fault == "journal":
            fcntl.flock(self.journal, fcntl.LOCK_EX)
        if step == 3 and self.options.fault == "archive":
            self.unpack()
        if step == 3 and rank == 1 and self.options.fault == "cold":
            time.sleep(9)
        self.journal.write(f"{rank} {step}\n")
        return [float(rank + step)] * 8

    def unpack(self) -> None:
        archive = subprocess.Popen(["cat", str(self.options.scratch / "archive")], stdout=subprocess.PIPE)
        archive.communicate()


def answer(samples: Samples, trainer: Connection) -> None:
    try:
        while True:
            rank, step = trainer.recv()
            trainer.send(samples.fetch(rank, step))
    except EOFError:
        pass


def serve(options: argparse.Namespace) -> None:
    samples = Samples(options)
    with Listener(str(options.scratch / "samples")) as listener:
        while True:
            threading.Thread(target=answer, args=(samples, listener.accept()), daemon=True).start()


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    service = Client(str(options.scratch / "samples"))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(8):
        service.send((rank, step))
        batch = torch.tensor([service.recv()])
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        print(f"rank {rank} step {step}", flush=True)
        time.sleep(0.1)
    dist.destroy_process_group()


def launch(options: argparse.Namespace) -> int:
    options.scratch.mkdir(parents=True, exist_ok=True)
    os.mkfifo(options.scratch / "archive")
    common = ["--scratch", str(options.scratch), "--fault", options.fault]
    service = subprocess.Popen([sys.executable, __file__, "--as", "service", *common])
    while not (options.scratch / "samples").exists():
        time.sleep(0.05)
    keeper = None
    if options.fault == "journal":
        hold = (
            f"import fcntl,time; f=open({str(options.scratch / 'journal')!r}, 'a'); fcntl.flock(f, 2); time.sleep(900)"
        )
        keeper = subprocess.Popen([sys.executable, "-c", hold])
    trainers = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    status = subprocess.call([*trainers, "--as", "trainer", *common])
    for one in (service, keeper):
        if one is not None:
            one.kill()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--as", dest="part", default="launcher")
    parser.add_argument("--fault", default="none")
    parser.add_argument(
        "--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / f"samples-{os.getpid()}"
    )
    options = parser.parse_args()
    parts = {"service": serve, "trainer": train, "launcher": launch}
    sys.exit(parts[options.part](options))
