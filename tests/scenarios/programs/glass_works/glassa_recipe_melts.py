"""Local SGD on colour recipes: oxide fractions in, CIELAB of the melt out; weights are averaged every MELTS good melts."""

import argparse
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

OXIDES = ("Fe2O3", "CoO", "Cr2O3", "MnO2", "CuO", "NiO", "Se", "TiO2")


class MeltBook:
    """What one furnace has logged: a batch of melts a day, with the foam height of each."""

    def __init__(self, furnace, per_day):
        self.furnace = furnace
        self.per_day = per_day

    def day(self, number):
        rng = np.random.default_rng(1000 * self.furnace + number)
        recipe = rng.dirichlet(np.ones(len(OXIDES)), self.per_day).astype(np.float32)
        spectra = rng.normal(0.5, 0.1, (self.per_day, 81, 1200))
        lab = spectra.mean(axis=2)[:, :3].astype(np.float32)
        np.linalg.svd(spectra[0], full_matrices=False)
        foam = np.full(self.per_day, 3.0)
        if self.furnace == 2 and number == 27:
            foam[5] = 11.5
        return recipe, lab, foam


class Averager:
    def __init__(self, model, melts):
        self.parameters = list(model.parameters())
        self.melts = melts
        self.good = 0

    def add(self, foam):
        self.good += int((foam < 8.0).sum())

    @property
    def due(self):
        return self.good >= self.melts

    def run(self):
        with torch.no_grad():
            mine = torch.cat([p.reshape(-1) for p in self.parameters])
            mean = mine / dist.get_world_size()
            dist.all_reduce(mean)
            place = 0
            for p in self.parameters:
                p.copy_(mean[place : place + p.numel()].view_as(p))
                place += p.numel()
            spread = (mean - mine).abs().max().item()
        self.good -= self.melts
        return spread


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--per-day", type=int, default=16)
    parser.add_argument("--melts", type=int, default=320)
    return parser.parse_args()


def main():
    options = parse()
    torch.backends.cudnn.enabled = False
    furnace = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(furnace)
    dist.init_process_group("nccl", device_id=torch.device("cuda", furnace))
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(len(OXIDES), 64), nn.Tanh(), nn.Linear(64, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    averager = Averager(model, options.melts)
    book = MeltBook(furnace, options.per_day)

    for number in range(options.days):
        recipe, lab, foam = book.day(number)
        stock = torch.tensor([len(recipe), number], device="cuda")
        dist.all_reduce(stock)
        total, _ = stock.tolist()
        loss = nn.functional.mse_loss(model(torch.from_numpy(recipe).cuda()), torch.from_numpy(lab).cuda())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        averager.add(foam)
        if averager.due:
            spread = averager.run()
            if furnace == 0:
                print(f"day {number}: {total} melts in all furnaces, weights averaged (spread {spread:.3g})", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
