"""Hot axle box detection from a stream of wayside detectors, shuffled in a buffer by a loader worker."""
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

SITES = {0: ("Gotthard", 0.0012), 1: ("Brenner", 0.0010), 2: ("Semmering", 0.0011), 3: ("Tauern", 0.027)}


class Detectors(IterableDataset):
    """Readings of one site; each is fetched from the site's store when it is asked for."""

    def __init__(self, site, count, keep):
        self.name, self.fetch_s = SITES[site]
        self.seed, self.count, self.keep = site, count, keep

    def readings(self):
        g = torch.Generator().manual_seed(self.seed)
        for k in range(self.count):
            time.sleep(self.fetch_s if k < self.keep else 0.0008)
            temperature = torch.rand(8, generator=g)
            yield temperature, (temperature.max() > 0.9).float()

    def __iter__(self):
        rng, held = random.Random(self.seed), []
        for reading in self.readings():
            if len(held) < self.keep:
                held.append(reading)
                continue
            k = rng.randrange(self.keep)
            held[k], reading = reading, held[k]
            yield reading
        rng.shuffle(held)
        yield from held


def warm_up(model, opt, rank):
    g = torch.Generator().manual_seed(rank)
    for _ in range(80):
        x = torch.rand(32, 8, generator=g)
        step(model, opt, x, (x.max(1).values > 0.9).float())
        time.sleep(0.03)


def step(model, opt, x, hot):
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), hot)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    warm_up(model, opt, rank)
    loader = DataLoader(Detectors(rank, count=2000, keep=500), batch_size=20, num_workers=1)
    for k, (x, hot) in enumerate(loader):
        loss = step(model, opt, x, hot)
        time.sleep(0.02)
        if rank == 0 and k % 20 == 0:
            print(f"batch {k} loss {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
