"""Flags abnormal blood panels of the animal hospital (27 analytes, species as an embedding)."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

ANALYTES, SPECIES = 27, 40


class PanelNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.species = nn.Embedding(SPECIES, 16)
        self.trunk = nn.Sequential(nn.Linear(ANALYTES + 16, width), nn.BatchNorm1d(width), nn.ReLU(),
                                   nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
        self.out = nn.Linear(width, 1)

    def forward(self, values, species):
        return self.out(self.trunk(torch.cat([values, self.species(species)], 1))).squeeze(1)


def panels(n, seed):
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(n, ANALYTES, generator=g)
    species = torch.randint(0, SPECIES, (n,), generator=g)
    return values, species, ((values[:, 3] + 0.3 * values[:, 9]) > 0.4).float()


class HospitalTrainer:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        self.model = DistributedDataParallel(PanelNet(cfg.width))
        self.loss = nn.BCEWithLogitsLoss()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=0.9)
        self.history = []

    @property
    def main(self):
        return self.rank == 0

    def step(self, i):
        values, species, target = panels(self.cfg.batch, 1000 * self.rank + i)
        loss = self.loss(self.model(values, species), target)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits = seen = 0
        for part in range(self.cfg.val_parts):
            values, species, target = panels(256, 900_000 + part)
            hits += ((self.model(values, species) > 0) == (target > 0)).sum().item()
            seen += len(target)
        self.model.train()
        return hits / seen

    def fit(self):
        began = time.time()
        for i in range(1, self.cfg.steps + 1):
            loss = self.step(i)
            if self.main and i % 20 == 0:
                print(f"{i:5d}  loss {loss:.4f}  {i / (time.time() - began):.1f} it/s", flush=True)
            if i % self.cfg.val_every == 0:
                if self.main:
                    self.history.append(self.validate())
                    print(f"{i:5d}  accuracy {self.history[-1]:.3f}", flush=True)
                dist.barrier()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--batch", type=int, default=6144)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--val-every", type=int, default=60)
    p.add_argument("--val-parts", type=int, default=8)
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    HospitalTrainer(p.parse_args()).fit()
    dist.destroy_process_group()
