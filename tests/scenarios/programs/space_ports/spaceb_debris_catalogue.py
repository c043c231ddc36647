"""Ballistic coefficient regression over a debris catalogue that is stored in altitude shells, a few files per rank."""
import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

SHELLS = {  # shell -> number of tracked fragments
    "LEO-400": 1900, "LEO-600": 2600, "LEO-800": 3300,
    "LEO-1000": 1300, "LEO-1200": 2700, "LEO-1400": 2900,
}


class ShellStream(IterableDataset):
    def __init__(self, rank, world):
        names = sorted(SHELLS, key=lambda n: int(n.split("-")[1]))
        self.mine = names[rank::world]

    def __iter__(self):
        for name in self.mine:
            altitude = float(name.split("-")[1])
            gen = torch.Generator().manual_seed(int(altitude))
            for _ in range(SHELLS[name]):
                area_to_mass = torch.rand(1, generator=gen) * 0.1
                drag = torch.exp(torch.tensor(-altitude / 500)) * area_to_mass
                yield torch.cat([torch.tensor([altitude / 1000]), area_to_mass, drag * 10]), drag * 100


def residual(model, probes):
    with torch.no_grad():
        return model(probes).square().mean()


def fit(rank, world):
    torch.manual_seed(11)
    net = nn.Sequential(nn.Linear(3, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
    ddp = DistributedDataParallel(net)
    opt = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    loader = DataLoader(ShellStream(rank, world), batch_size=50)
    probes = torch.rand(64, 3)
    for epoch in range(3):
        began, seen = time.monotonic(), 0
        for features, target in loader:
            loss = nn.functional.mse_loss(ddp(features), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(features)
            time.sleep(0.03)
        summary = torch.tensor([float(seen), residual(net, probes)])
        everyone = [torch.zeros_like(summary) for _ in range(world)]
        dist.all_gather(everyone, summary)
        if rank == 0:
            rms = math.sqrt(max(float(e[1]) for e in everyone))
            print(f"epoch {epoch}: {sum(int(e[0]) for e in everyone)} fragments, "
                  f"{time.monotonic() - began:.1f} s, probe rms {rms:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    fit(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
