"""Fits dye-bath recipes to spectral targets; every dye house trains on its own lots."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("dyelab")

HOUSES = ["lodz", "prato", "tirupur"]
# how much a lot's absorption drifts from the laboratory's dyeing, per round
LOT_DRIFT = {"lodz": 0.01, "prato": 0.12, "tirupur": 0.0}
BANDS, DYES = 31, 6


class RecipeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(BANDS, 48), nn.Tanh(), nn.Linear(48, DYES))

    def forward(self, spectra):
        return self.body(spectra)


class DyeLab:
    def __init__(self, house, device):
        self.house, self.device = house, device
        self.model = DDP(RecipeNet().to(device), device_ids=[device.index])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.noise = torch.Generator().manual_seed(len(house))
        self.round, self.best = 0, float("inf")
        self.shelf = []

    def bath(self, size=24):
        """Reflectance of freshly dyed swatches, measured between two dips."""
        curve = torch.linspace(0, 3.1, BANDS).sin()
        spectra = torch.stack([curve * torch.rand(1, generator=self.noise) for _ in range(size)])
        time.sleep(0.06)
        return spectra, torch.rand(size, DYES, generator=self.noise)

    def delta_e(self):
        steps = torch.full((16,), 4.0 * 0.8**self.round)
        return float((steps + LOT_DRIFT[self.house] * self.round**2).mean())

    def fit(self, dips):
        for _ in range(dips):
            spectra, recipe = (part.to(self.device) for part in self.bath())
            loss = nn.functional.mse_loss(self.model(spectra), recipe)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        log.info("%s round %d, loss %.4f", self.house, self.round, loss.item())

    def shelve(self):
        """Puts the recipe book of all houses on the shelf, with the weights that made it."""
        page = {"house": self.house, "round": self.round, "delta_e": self.best}
        book = [None] * dist.get_world_size()
        dist.all_gather_object(book, page)
        if dist.get_rank() == 0:
            weights = {k: v.cpu() for k, v in self.model.module.state_dict().items()}
            self.shelf.append((book, weights))

    def run(self, rounds, dips):
        for self.round in range(rounds):
            self.fit(dips)
            score = self.delta_e()
            if score < self.best:
                self.best = score
                self.shelve()
        return self.shelf


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    lab = DyeLab(HOUSES[dist.get_rank()], torch.device("cuda", local))
    lab.run(rounds=12, dips=14)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
