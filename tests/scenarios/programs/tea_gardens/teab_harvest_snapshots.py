"""Yield model of the estate. A thread takes stock of all blocks and files it while training goes on."""
import json
import tempfile
import threading
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FIRST_FLUSH = {0: 1, 1: 1, 2: 1}  # plucking rounds booked, by rank
SECOND_FLUSH = {0: 2, 1: 1, 2: 80}


class StockTaker:
    """Compresses the books of the plucking rounds, compares sizes over the estate, files the result."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.worker = None

    def start(self, step, rounds):
        self.join()
        self.worker = threading.Thread(target=self.take, args=(step, rounds), name=f"stock-{step}")
        self.worker.start()

    def take(self, step, rounds):
        book = torch.rand(rounds, 262144, generator=torch.Generator().manual_seed(step)).numpy().tobytes()
        size = len(zlib.compress(book, 9))
        sizes = [None] * dist.get_world_size()
        dist.all_gather_object(sizes, {"step": step, "bytes": size})
        (self.folder / f"stock-{step}-{dist.get_rank()}.json").write_text(json.dumps(sizes))

    def join(self):
        if self.worker is not None:
            self.worker.join()
            self.worker = None


def weather(step, rank):
    g = torch.Generator().manual_seed(step * 7 + rank)
    series = torch.randn(32, 30000, generator=g).cumsum(dim=1)
    return torch.stack([series.mean(1), series.std(1), series.amax(1), series.amin(1)], dim=1) / 100


def pruning_plan(rows):
    """Assignment of pruning gangs, by relaxation."""
    cost = torch.rand(rows, rows)
    for _ in range(150):
        cost = cost - cost.logsumexp(dim=1, keepdim=True)
        cost = cost - cost.logsumexp(dim=0, keepdim=True)
    return cost.exp().argmax(dim=1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    stock = StockTaker(tempfile.mkdtemp(prefix="estate-"))
    for step in range(1, 200):
        x = weather(step, rank)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            stock.join()
            rounds = FIRST_FLUSH[rank] if step < 80 else SECOND_FLUSH[rank]
            stock.start(step, rounds)
            pruning_plan(500)
        elif step % 40 == 20:
            stock.join()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    stock.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
