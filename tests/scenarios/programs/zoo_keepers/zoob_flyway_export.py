"""Flyway density of ringed storks. Once a season has been fitted, its map is exported by the process of the ringing centre."""
import contextlib
import json
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

CENTRE = 2  # has the ringing centre's disk
GRID = 90


@contextlib.contextmanager
def patient(hours=3):
    """Lets an export take longer than the usual timeout of the process group."""
    waiting_room = dist.new_group(timeout=timedelta(hours=hours))
    try:
        yield
    finally:
        dist.barrier(group=waiting_room)
        dist.destroy_process_group(waiting_room)


class Flyway:
    def __init__(self, station):
        self.station = station
        self.logits = torch.zeros(GRID, GRID)
        self.pull = torch.zeros_like(self.logits)

    def sightings(self, season, night):
        g = torch.Generator().manual_seed(season * 1000 + night * 3 + self.station)
        where = torch.randn(20_000, 2, generator=g) * 9 + torch.tensor([45.0 + 4 * season, 20.0 + 0.5 * night])
        where = where.long().clamp(0, GRID - 1)
        return torch.zeros(GRID * GRID).index_add_(0, where[:, 0] * GRID + where[:, 1], torch.ones(20_000)).view(GRID, GRID)

    def night(self, season, night):
        counts = self.sightings(season, night)
        for _ in range(10):  # ascent on the multinomial likelihood, with momentum
            gradient = counts - counts.sum() * torch.softmax(self.logits.flatten(), 0).view_as(counts)
            dist.all_reduce(gradient)
            self.pull = 0.7 * self.pull + gradient / counts.sum()
            self.logits = self.logits + self.pull
        return self.logits.max().item()


def export(flyway, folder, season):
    density = torch.softmax(flyway.logits.flatten(), 0).view(GRID, GRID)
    rings = [[round(v, 6) for v in row] for row in density.tolist()]
    with open(os.path.join(folder, f"season{season}.json"), "w") as out:
        json.dump({"type": "density", "rings": rings}, out)


def finish_season(flyway, folder, season):
    if dist.get_rank() != CENTRE:
        return
    with patient():
        export(flyway, folder, season)


def main():
    dist.init_process_group("gloo")
    flyway = Flyway(dist.get_rank())
    with tempfile.TemporaryDirectory(prefix="flyway") as folder:
        for season in range(5):
            for night in range(120):
                top = flyway.night(season, night)
            if dist.get_rank() == 0:
                print(f"season {season}: peak {top:.2f}", flush=True)
            finish_season(flyway, folder, season)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
