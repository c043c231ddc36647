"""Training by ``mp.spawn``, which gives each process its rank as an argument; the first process of all awaits the results."""

from __future__ import annotations

import argparse
import os
import socket
from datetime import timedelta
from multiprocessing.queues import Queue
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3


def read_labels(path: Path) -> torch.Tensor:
    """The classes of the plankton in the pictures, a letter each."""
    return torch.tensor([ord(letter) - ord("a") for letter in path.read_text().strip()])


def learn(rank: int, port: int, folder: Path, results: Queue[float]) -> None:
    labels = read_labels(folder / f"labels.{rank}")
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD, timeout=timedelta(minutes=10)
    )
    model = torch.nn.Linear(8, 4)
    for _ in range(20):
        torch.nn.functional.cross_entropy(model(torch.randn(len(labels), 8)), labels).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    results.put(float(model.weight.norm()))
    dist.destroy_process_group()


def main(options: argparse.Namespace) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    if options.fault != "port":
        taken.close()
    folder = Path(os.environ.get("TMPDIR", "/tmp"))
    for rank in range(WORLD):
        path = folder / f"labels.{rank}"
        path.unlink(missing_ok=True)
        if options.fault == "labels" and rank == 1:
            os.mkfifo(path)
        else:
            path.write_text("abcdabcdabcd\n")
    results = mp.get_context("spawn").Queue()
    ranks = mp.spawn(learn, (port, folder, results), nprocs=WORLD, join=False)
    for _ in range(WORLD):
        print(f"{results.get():.3f}", flush=True)
    ranks.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    main(parser.parse_args())
