"""Three trainers of a speech model for clinics; a thread of each writes checkpoints while training goes on."""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


class Checkpoints:
    """Each rank writes its shard; a checkpoint counts once all shards are there."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options, self.rank = folder, options, dist.get_rank()
        own = dist.new_group()
        self.group = None if options.lean else own
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None

    def save(self, step: int, state: dict[str, torch.Tensor]) -> None:
        self.wait()
        copies = {name: tensor.clone() for name, tensor in state.items()}
        self.pending = self.pool.submit(self.write, step, copies)

    def wait(self) -> None:
        if self.pending is not None:
            self.pending.result()

    def write(self, step: int, state: dict[str, torch.Tensor]) -> None:
        shard = self.folder / f"shard-{self.rank}.pt"
        with open(shard.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the mirror must not read half a shard
            torch.save(state, shard)
            if self.rank == self.options.long and step == 20:
                for name in state:
                    self.append(shard, name)
            if self.rank == self.options.mirror and step == 10:
                subprocess.Popen(["tail", "-f", str(shard)], stdout=subprocess.DEVNULL, pass_fds=[lock.fileno()])
        dist.barrier(group=self.group)
        if self.rank == 0:
            (self.folder / "complete").write_text(str(step))

    def append(self, shard: Path, name: str) -> None:
        with open(shard, "ab") as file:
            for _ in range(30):
                file.write(name.encode() * 1000)
                os.fsync(file.fileno())
                time.sleep(0.05)  # the share of this clinic is slow


def train(folder: Path, options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(40, 32), torch.nn.GELU(), torch.nn.Linear(32, 30))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoints = Checkpoints(folder, options)
    for step in range(1, 41):
        if step % 10 == 1:
            time.sleep(0.7)  # the next recordings are read
        else:
            time.sleep(0.05)
        frames = torch.randn(16, 40)
        loss = torch.nn.functional.cross_entropy(model(frames), torch.randint(30, (16,)))
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            checkpoints.save(step, model.state_dict())
            print(f"[rank {rank}] step {step}: loss {loss.item():.3f}", flush=True)
    checkpoints.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mirror", type=int, default=-1)
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--long", type=int, default=-1)
    given = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    with tempfile.TemporaryDirectory() as scratch:
        train(Path(scratch), given)
    dist.destroy_process_group()
