"""Provenance-gap scoring for a museum. Object records come from a catalogue API with a quota per clock window."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WINDOW = 4


class QuotaSpent(Exception):
    def __init__(self, reopens):
        super().__init__(f"quota spent until {time.strftime('%H:%M:%S', time.localtime(reopens))}")
        self.reopens = reopens


class Catalogue:
    """A client with the quota rules of the catalogue: 60 objects in a window, then three full windows off."""

    def __init__(self):
        self.left, self.reopens = 60, 0.0

    def objects(self, n):
        now = time.time()
        if self.reopens and now >= self.reopens:
            self.left, self.reopens = 200, 0.0
        if n > self.left:
            self.reopens = self.reopens or (now // WINDOW + 4) * WINDOW
            raise QuotaSpent(self.reopens)
        self.left -= n
        return torch.rand(n, 14)


def pause_until(moment):
    """Half of what is left, again and again, so that a clock that is set in between does no harm."""
    while (left := moment - time.time()) > 0.01:
        time.sleep(max(left / 2, 0.01))


def patiently(fetch, *args):
    try:
        return fetch(*args)
    except QuotaSpent as e:
        print(e, flush=True)
        pause_until(e.reopens)
        return patiently(fetch, *args)


def learn(model, opt, objects, n):
    for _ in range(n):
        time.sleep(0.05)
        x = objects[torch.randperm(len(objects))[:10]]
        gaps = (x[:, :7] - x[:, 7:]).abs().sum(1)
        loss = nn.functional.mse_loss(model(x).squeeze(1), gaps)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.detach()


def run(rank, world, rendezvous):
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=world)
    model = DDP(nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    catalogue = Catalogue()
    objects = torch.zeros(50, 14)
    for exhibition in range(2):
        if rank == 0:
            objects = patiently(catalogue.objects, 50)
        work = dist.broadcast(objects, src=0, async_op=True)
        work.wait()
        loss = learn(model, opt, objects, 55)
        dist.all_reduce(loss)
        if rank == 0:
            print(f"exhibition {exhibition}: {loss.item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(3, os.path.join(folder, "rendezvous")), nprocs=3)
