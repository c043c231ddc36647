"""Coupled surface and groundwater models: each keeps its own group, exchanges go out by backlog."""
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Exchange:
    """Fluxes of one model that are averaged over all basins when their turn has come."""

    name: str
    group: dist.ProcessGroup
    pending: list = field(default_factory=list)

    @property
    def backlog(self):
        return len(self.pending)

    def flush(self):
        flux = torch.stack(self.pending).mean(0) if self.pending else torch.zeros(64)
        self.pending.clear()
        dist.all_reduce(flux, group=self.group)
        return flux / self.group.size()


class Basin:
    def __init__(self, number):
        self.g = torch.Generator().manual_seed(number)
        self.surface = torch.rand(64, generator=self.g)
        self.ground = torch.rand(64, generator=self.g)
        self.springs = SPRINGS.get(number, {})

    def step(self, hour):
        time.sleep(0.02)
        rain = torch.rand(64, generator=self.g) * 0.1
        seep = 0.2 * (self.surface - self.ground)
        self.surface = 0.9 * self.surface + rain - seep
        self.ground = self.ground + 0.5 * seep
        yield "surface", rain - seep
        yield "surface", 0.1 * self.surface
        yield "ground", seep
        for _ in range(self.springs.get(hour, 0)):
            yield "ground", -0.05 * self.ground


# hours in which springs of a basin discharge, and how many of them
SPRINGS = {1: {131: 9, 132: 4}, 2: {60: 2}}


class Coupler:
    def __init__(self, names, every=6):
        self.every = every
        self.exchanges = {name: Exchange(name, dist.new_group()) for name in names}

    def collect(self, name, flux):
        self.exchanges[name].pending.append(flux)

    def due(self):
        """What has gathered most goes first."""
        return sorted(self.exchanges.values(), key=lambda e: -e.backlog)

    def exchange(self, basin):
        for item in self.due():
            flux = item.flush()
            state = getattr(basin, item.name)
            setattr(basin, item.name, state + 0.01 * flux)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    basin, coupler = Basin(rank), Coupler(("surface", "ground"))
    for hour in range(480):
        for name, flux in basin.step(hour):
            coupler.collect(name, flux)
        if hour % coupler.every == coupler.every - 1:
            coupler.exchange(basin)
        if rank == 0 and hour % 48 == 0:
            print(f"hour {hour}: storage {basin.surface.mean() + basin.ground.mean():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
