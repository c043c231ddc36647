"""Reads features that an external exporter delivers through a named pipe, one for each rank."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FEEDS = ("prices", "volumes", "orders")


def prepare(folder: str, name: str) -> str:
    """Where a feed can be read. Feeds that were exported before are plain files."""
    path = os.path.join(folder, name)
    if name == "orders":
        os.mkfifo(path)
    else:
        with open(path, "w") as file:
            file.writelines(f"{row % 13} {row % 7} {row % 5}\n" for row in range(200))
    return path


def rows(path: str):
    with open(path) as feed:
        for line in feed:
            yield [float(word) for word in line.split()]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = prepare(folder, FEEDS[rank])
        dist.barrier()
        batch: list[list[float]] = []
        for row in rows(path):
            batch.append(row)
            if len(batch) < 10:
                continue
            table = torch.tensor(batch)
            loss = (model(table[:, :2]) - table[:, 2:]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch.clear()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
