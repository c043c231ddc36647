"""A cluster without open ports: trainers meet in a file, and an evaluator takes their weights over a group in a file, too."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper, _world, rendezvous

LIMIT = timedelta(minutes=10)


def share_weights(folder: Path, place: int) -> dist.ProcessGroup:
    store, place, size = next(rendezvous(f"file://{folder}/weights", place, 2, timeout=LIMIT))
    group, _ = _new_process_group_helper(
        size, place, [], "gloo", PrefixStore("eval", store), group_name="eval", timeout=LIMIT
    )
    _world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def train(rank: int, folder: Path, options: argparse.Namespace) -> None:
    dist.init_process_group("gloo", f"file://{folder}/world", rank=rank, world_size=2, timeout=LIMIT)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    group = share_weights(folder, 0) if rank == 0 else None
    for step in range(options.steps):
        if options.fault == "prices" and rank == 1 and step == 15:
            (folder / "prices").read_bytes()
        model(torch.randn(8, 16)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if group is not None and step % 10 == 9:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, src=0, group=group)
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()


def evaluate(folder: Path, options: argparse.Namespace) -> None:
    model = make_model()
    group = share_weights(folder, 1)
    for round_ in range(options.steps // 10):
        for weight in model.parameters():
            dist.broadcast(weight.data, src=0, group=group)
        with torch.no_grad():
            print(f"round {round_}: {model(torch.ones(4, 16)).mean().item():.3f}", flush=True)
        if options.fault == "scores" and round_ == 2:
            with open(folder / "scores", "w") as scores:
                scores.write("done\n")
        if options.fault == "slow" and round_ == 2:
            time.sleep(4.0)


def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pipe in ("prices", "scores"):
            os.mkfifo(folder / pipe)
        evaluator = mp.get_context("spawn").Process(target=evaluate, args=(folder, options), name="evaluator")
        evaluator.start()
        mp.spawn(train, (folder, options), nprocs=2)
        evaluator.join()
        sys.exit(evaluator.exitcode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--steps", type=int, default=60)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(parser.parse_args())
