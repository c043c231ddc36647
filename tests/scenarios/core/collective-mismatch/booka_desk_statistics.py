"""Matrix factorisation of readers and titles; desk statistics of each week are combined by name."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

READERS, TITLES, WORLD = 400, 300, 3


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.readers = nn.Embedding(READERS, 12)
        self.titles = nn.Embedding(TITLES, 12)

    def forward(self, reader, title):
        return (self.readers(reader) * self.titles(title)).sum(1)


def week_of(rank, week):
    """Desk log: what happened first at this branch comes first."""
    day = ["loan", "loan", "renewal", "return", "loan", "renewal", "return"]
    if rank == 1 and week == 6:
        day = ["return", "loan", "return", "renewal", "loan", "renewal", "loan"]
    return day * 3


def add(table, kind, value):
    if kind == "loan":
        table[kind] = table.get(kind, torch.zeros(1)) + value
    elif kind == "renewal":
        table[kind] = torch.maximum(table.get(kind, torch.zeros(1)), value.reshape(1))
    else:
        table[kind] = value.reshape(1).clone()


def combine(table):
    result = {}
    for kind, value in table.items():
        if kind == "loan":
            dist.all_reduce(value)
            result[kind] = value.item()
        elif kind == "renewal":
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
            result[kind] = value.item()
        else:
            branches = [torch.zeros(1) for _ in range(WORLD)]
            dist.all_gather(branches, value)
            result[kind] = torch.cat(branches).tolist()
    return result


def branch(rank, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    torch.manual_seed(12)
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(Factors())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank)
    for week in range(12):
        table = {}
        for kind in week_of(rank, week):
            reader = torch.randint(0, READERS, (64,), generator=g)
            title = torch.randint(0, TITLES, (64,), generator=g)
            rating = torch.linalg.svdvals(torch.rand(320, 320, generator=g))[:64]
            loss = nn.functional.mse_loss(model(reader, title), rating / rating[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            add(table, kind, loss.detach())
        summary = combine(table)
        if rank == 0:
            print("week", week, summary, file=sys.stderr, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(branch, args=(os.path.join(folder, "meet"),), nprocs=WORLD)
