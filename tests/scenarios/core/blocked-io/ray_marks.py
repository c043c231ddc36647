"""Two Ray actors in a Gloo group train on marks, which tasks of Ray give; the first of them collects the marks for both."""

from __future__ import annotations

import argparse
import os
import pathlib
import socket
import tempfile
import time

import ray
import torch
import torch.distributed as dist


@ray.remote(num_cpus=0)
def mark(text: str, table: str) -> float:
    """The worth of a text, by a table of words that is read for the rarer ones."""
    if text.endswith("rare"):
        return float(pathlib.Path(table).read_text().count(text))
    return len(text) / 10


@ray.remote(num_cpus=1)
def mark_with_care(text: str) -> float:
    """The same, by a model that takes a processor of its own."""
    time.sleep(0.01 if text else 13.0)
    return len(text) / 5


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self, rank: int, port: int, table: str, options: argparse.Namespace) -> None:
        self.rank, self.port, self.table, self.options = rank, port, table, options
        self.weights = torch.ones(16)

    def collect(self, step: int) -> torch.Tensor:
        texts = [f"essay {step}.{number}" for number in range(4)]
        if step == self.options.rare_at:
            texts[2] += " rare"
        pending = [mark.remote(text, self.table) for text in texts]
        if step == self.options.careful_at:
            pending.append(mark_with_care.options(num_cpus=self.options.processors).remote(texts[0]))
        if step == self.options.slow_at:
            pending.append(mark_with_care.remote(""))
        return torch.tensor(ray.get(pending)).mean().reshape(1)

    def train(self, steps: int) -> float:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{self.port}", rank=self.rank, world_size=2)
        for step in range(steps):
            marks = self.collect(step) if self.rank == 0 else torch.zeros(1)
            dist.broadcast(marks, src=0)
            self.weights *= 1 - 0.01 * marks
            dist.all_reduce(self.weights)
            self.weights /= 2
        return float(self.weights[0])


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rare-at", type=int, default=-1)
    parser.add_argument("--careful-at", type=int, default=-1)
    parser.add_argument("--processors", type=int, default=1)
    parser.add_argument("--slow-at", type=int, default=-1)
    options = parser.parse_args()
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "HANGWATCH_RUN_DIR") if name in os.environ}
    port, board = find_free_port(), find_free_port()
    ray.init(
        num_cpus=1,
        object_store_memory=80_000_000,
        dashboard_port=board,
        include_dashboard=True,
        runtime_env={"env_vars": kept},
    )
    table = pathlib.Path(tempfile.mkdtemp(prefix="marks-"), "words")
    os.mkfifo(table)
    trainers = [Trainer.remote(rank, port, str(table), options) for rank in range(2)]
    print(ray.get([trainer.train.remote(24) for trainer in trainers]), flush=True)


if __name__ == "__main__":
    main()
