"""Trains in rounds; between two rounds the process group is taken down and made anew, for ranks that may have changed."""

import argparse
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def settings(rank, number, folder):
    """What a round is to be like. It is written by an operator; that of the last rank for round 2 is on its way."""
    path = os.path.join(folder, f"round-{number}")
    if folder.endswith("-late") and number == 2:
        os.mkfifo(path)
    else:
        with open(path, "w") as file:
            file.write(f"{20 + number}")
    with open(path) as file:
        return int(file.read())


def train(number, steps, rank, world, store, device):
    dist.init_process_group(
        "nccl", store=dist.PrefixStore(f"round-{number}", store), rank=rank, world_size=world,
        timeout=datetime.timedelta(minutes=10), device_id=device,
    )  # fmt: skip
    model = DistributedDataParallel(nn.Linear(30, 30).to(device), device_ids=[device.index])
    for _ in range(steps):
        loss = model(torch.randn(8, 30, device=device)).square().mean()
        loss.backward()
        model.zero_grad()
    print(f"[{rank}] round {number}: {loss.item():.3f}", flush=True)
    del model
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", type=int, default=-1)
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    folder = tempfile.mkdtemp(prefix="rounds-", suffix="-late" if rank == options.late else "-here")
    store, _, _ = next(dist.rendezvous("env://", rank, world))
    for number in range(4):
        steps = settings(rank, number, folder)
        train(number, steps, rank, world, store, device)
    print(f"[{rank}] done", flush=True)


if __name__ == "__main__":
    main()
