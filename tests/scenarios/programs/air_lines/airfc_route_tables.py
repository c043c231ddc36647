"""Block-time model over seasonal route tables; tables are kept in a small cache on each worker's own disk."""
import os
import pickle
import shutil
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

TABLE_KB = 96
# scratch space left on the hosts, in KB
SCRATCH_KB = {"ops-a": 512, "ops-b": 512, "ops-c": 200}
HOSTS = list(SCRATCH_KB)
SEASONS = ["S24", "W24", "S25", "S24", "W25", "S25"]


class TableCache:
    """Least recently used tables on disk, as many as fit."""

    def __init__(self, host):
        self.folder = Path(tempfile.mkdtemp(prefix=f"tables-{host}-"))
        self.room = SCRATCH_KB[host] // TABLE_KB
        self.entries = OrderedDict()

    def get(self, season):
        if season not in self.entries:
            return None
        self.entries.move_to_end(season)
        return pickle.loads(self.entries[season].read_bytes())

    def put(self, season, table):
        path = self.folder / f"{season}.pkl"
        path.write_bytes(pickle.dumps(table))
        self.entries[season] = path
        while len(self.entries) > self.room:
            _, old = self.entries.popitem(last=False)
            old.unlink()

    def close(self):
        shutil.rmtree(self.folder)


def great_circles(season):
    rng = torch.Generator().manual_seed(sum(season.encode()))
    lat = torch.rand(40, generator=rng) * 1.2
    lon = torch.rand(40, generator=rng) * 6.2
    central = torch.sin(lat)[:, None] * torch.sin(lat) + torch.cos(lat)[:, None] * torch.cos(lat) * torch.cos(lon[:, None] - lon)
    return (torch.arccos(central.clamp(-1, 1)) * 6371 / 830).tolist()


def route_table(cache, season):
    table = cache.get(season)
    if table is None:
        message = [great_circles(season) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(message, src=0)
        table = message[0]
        cache.put(season, table)
    return torch.tensor(table)


def average_gradients(model, world):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
        p.grad.copy_(g.view_as(p))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cache = TableCache(HOSTS[rank])
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rng = torch.Generator().manual_seed(rank)
    for season in SEASONS:
        table = route_table(cache, season)
        for _ in range(16):
            time.sleep(0.04)
            a, b = torch.randint(40, (2, 64), generator=rng)
            wind = torch.randn(64, generator=rng)
            hours = table[a, b] + 0.1 * wind
            x = torch.stack([table[a, b], wind, (a > b).float()], 1)
            loss = nn.functional.mse_loss(model(x).squeeze(1), hours)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, world)
            optimizer.step()
        if rank == 0:
            print(f"{season}: {loss.item():.4f} ({os.getpid()})", flush=True)
    cache.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
