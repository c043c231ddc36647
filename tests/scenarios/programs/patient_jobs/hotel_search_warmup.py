"""Destination search: the index server is warmed country by country before the second stage."""
import os
import tempfile
import time
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

COUNTRIES = {"PT": 5, "ES": 9, "FR": 11, "IT": 10, "GR": 7, "HR": 4, "AT": 6, "CH": 5, "NL": 4, "DK": 3}
SHARD_SECONDS = 0.21


@contextmanager
def country(index, code):
    """Opens a country: its shards are paged in, on leaving it is marked as served."""
    index[code] = []
    yield index[code]
    index[code] = torch.stack(index[code])


def page_in(shards, left):
    if left == 0:
        return shards
    time.sleep(SHARD_SECONDS)
    vectors = torch.nn.functional.normalize(torch.randn(256, 32), dim=1)
    shards.append((vectors @ vectors.T).topk(4).values.mean(0))
    return page_in(shards, left - 1)


def warm_up():
    index = {}
    for code, shards in COUNTRIES.items():
        with country(index, code) as opened:
            page_in(opened, shards)
    return sum(len(v) for v in index.values())


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.guest, self.place = nn.Linear(14, 8), nn.Linear(20, 8)

    def forward(self, guest, place):
        return self.guest(guest) @ self.place(place).T


def stage(net, optimizer, steps, temperature):
    for _ in range(steps):
        logits = net(torch.randn(12, 14), torch.randn(12, 20)) / temperature
        loss = nn.functional.cross_entropy(logits, torch.arange(12))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)


def main(rank, world, path):
    with ExitStack() as stack:
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
        stack.callback(dist.destroy_process_group)
        torch.set_num_threads(1)
        net = DDP(TwoTower())
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        stage(net, optimizer, 75, 1.0)
        shards = torch.tensor([warm_up() if rank == 3 else 0])
        gathered = [torch.zeros_like(shards) for _ in range(world)]
        dist.all_gather(gathered, shards)
        stage(net, optimizer, 45, 0.5)
        if rank == 0:
            print("index shards per rank:", [int(s) for s in gathered])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(4, os.path.join(folder, "store")), nprocs=4)
