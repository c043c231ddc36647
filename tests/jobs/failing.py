"""A job that fails, and how: ``failing.py FAULT``. Ordinary mistakes that crash on Gloo, and failures that are none of these.

All but the first three collectives are the fault's. Nobody handles anything, as in most programs.
"""

import os
import signal
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def sizes(rank: int) -> None:
    """The last batch is smaller on one rank."""
    losses = torch.ones(4 + 2 * rank)
    dist.all_reduce(losses)


def dtype(rank: int) -> None:
    """One rank has counted in another type."""
    total = torch.ones(8, dtype=torch.float64 if rank == 1 else torch.float32)
    dist.all_reduce(total)


def gathered(rank: int) -> None:
    """Predictions are gathered without padding."""
    predictions = torch.ones(16 - 5 * rank)
    found = [torch.empty_like(predictions) for _ in range(dist.get_world_size())]
    dist.all_gather(found, predictions)


def evaluate(model: torch.nn.Module) -> torch.Tensor:
    """The loss over all ranks."""
    loss = model(torch.ones(2, 8)).mean()
    dist.all_reduce(loss)
    return loss


def evaluation(rank: int) -> None:
    """The main process alone evaluates, and the metric is averaged over all."""
    model = torch.nn.Linear(8, 8)
    with torch.no_grad():
        for step in range(4):
            if step == 2 and rank == 0:
                evaluate(model)
            dist.all_reduce(torch.ones(64))


def main_process(rank: int) -> None:
    """A collective for a log line."""
    for _ in range(4):
        dist.all_reduce(torch.ones(32))
        if rank == 0:
            norm = torch.ones(1)
            dist.all_reduce(norm)


def order(rank: int) -> None:
    """Two collectives, one before the other."""
    loss, weights = torch.ones(1), torch.ones(64)
    if rank == 0:
        dist.all_reduce(loss)
        dist.all_reduce(weights)
    else:
        dist.all_reduce(weights)
        dist.all_reduce(loss)


def parameters(rank: int) -> None:
    """Gradients are averaged by hand, and one rank has frozen a layer."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.Linear(4, 2))
    if rank == 1:
        model[0].requires_grad_(False)
    model(torch.ones(2, 16)).sum().backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)


def buckets(rank: int) -> None:
    """Gradients go in buckets, of another size on one rank."""
    flat = torch.ones(96)
    size = 32 if rank == 0 else 48
    for bucket in flat.split(size):
        dist.all_reduce(bucket)


def leaves(rank: int) -> None:
    """One rank is done before the others."""
    for step in range(6):
        if step == 3 and rank == 1:
            print("rank 1 has seen enough")
            return
        dist.all_reduce(torch.ones(8))


def batches(rank: int) -> None:
    """DDP without join, and one rank has a batch less."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    loader = [torch.ones(2, 8) for _ in range(5 - rank)]
    seen = torch.zeros(1)
    for batch in loader:
        model(batch).sum().backward()
        seen += 1
    dist.all_reduce(seen)


def items(rank: int) -> None:
    """A collective for each item, and ranks have unlike numbers of them."""
    mine = list(range(6 - 2 * rank))
    for item in mine:
        dist.all_reduce(torch.full((4,), float(item)))


def skips(rank: int) -> None:
    """An empty batch is skipped, and one of two collectives of the step with it."""
    for size in (3, 4, 0 if rank == 1 else 5, 6):
        dist.all_reduce(torch.tensor([float(size)]))
        if size == 0:
            continue
        dist.all_reduce(torch.ones(16))


def checkpoint(rank: int) -> None:
    """The main process saves, and what it saves is a sum over all."""
    for step in range(4):
        dist.all_reduce(torch.ones(64))
        if rank == 0 and step == 1:
            seen = torch.ones(2)
            dist.all_reduce(seen)
            torch.save({"seen": seen}, Path(os.devnull))


def wait_for_all() -> None:
    """Where the others are while one rank fails."""
    dist.all_reduce(torch.ones(8))


def memory(rank: int) -> None:
    """Out of memory."""
    if rank == 1:
        bytearray(1 << 60)
    wait_for_all()


def assertion(rank: int) -> None:
    """An assertion of the program's."""
    assert rank != 1, "the labels are out of range"
    wait_for_all()


def interrupt(rank: int) -> None:
    """Somebody has pressed Ctrl-C."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGINT)
    wait_for_all()


def network(rank: int) -> None:
    """The data's server is gone."""
    if rank == 1:
        socket.create_connection(("127.0.0.1", 1), timeout=5)
    wait_for_all()


def value(rank: int) -> None:
    """A value of one rank's data."""
    if rank == 1:
        int("7 apples")
    wait_for_all()


def status(rank: int) -> None:
    """The program leaves with a status of its own."""
    if rank == 1:
        sys.exit(3)
    wait_for_all()


def everywhere(rank: int) -> None:
    """The same error on all ranks."""
    wait_for_all()
    raise RuntimeError(f"the configuration has no learning rate (rank {rank})")


def missing_file(rank: int) -> None:
    """A shard is not there."""
    if rank == 1:
        Path("/data/shard-00001.bin").read_bytes()
    wait_for_all()


def main() -> None:
    """Train a little, then fail."""
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    globals()[sys.argv[1]](dist.get_rank())


main()
