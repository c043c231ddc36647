"""Audience test: predicts dial ratings from stills. The stills come as an endless stream of row groups."""
import itertools
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="[%(process)d] %(message)s")


class Screening:
    """A file of one test screening: rows in groups, as the dial recorder flushes them."""

    def __init__(self, number, groups, rows=64):
        self.number, self.groups, self.rows = number, groups, rows

    def read(self, group):
        gen = torch.Generator().manual_seed(1000 * self.number + group)
        stills = torch.rand(self.rows, 3 * 12 * 12, generator=gen)
        dials = stills.mean(1, keepdim=True) * 10
        return stills, dials


def festival(start):
    """Screenings per city; the small houses flush more rarely."""
    sizes = {"lyon": 9, "turin": 7, "ghent": 2}
    for number, (city, groups) in enumerate(sizes.items(), start):
        yield Screening(number, groups)


def stream(screenings, rank, world, batch=16):
    """Goes round the screenings for ever; each rank takes its own row groups."""
    stills, dials = [], []
    while True:
        for screening in screenings:
            for group in range(rank, screening.groups, world):
                x, y = screening.read(group)
                stills.extend(x)
                dials.extend(y)
                while len(stills) >= batch:
                    yield torch.stack(stills[:batch]), torch.stack(dials[:batch])
                    del stills[:batch], dials[:batch]


class DialNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(432, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, stills):
        return self.layers(stills)


def curriculum(rank, world):
    """First the whole festival, then the house with the pickiest audience."""
    everything = list(festival(start=1))
    yield "festival", 450, stream(everything, rank, world)
    yield "ghent", 150, stream(everything[-1:], rank, world)


def run():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(DialNet())
    optim = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for phase, steps, source in curriculum(rank, world):
        for step, (stills, dials) in enumerate(itertools.islice(source, steps)):
            loss = nn.functional.smooth_l1_loss(model(stills), dials)
            optim.zero_grad()
            loss.backward()
            optim.step()
            if step % 50 == 0 and rank == 0:
                logging.info("%s %d: %.4f", phase, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
