"""Photometric redshifts from broad-band fluxes; each rank reads its own tiles of the survey."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
SURVEY = Path(tempfile.gettempdir(), f"survey-{os.environ['MASTER_PORT']}")
BANDS = 5


def write_tiles(number=11, sources=80):
    SURVEY.mkdir(exist_ok=True)
    for index in range(number):
        generator = torch.Generator().manual_seed(index)
        redshift = torch.rand(sources, 1, generator=generator) * 2
        fluxes = torch.cat([torch.sin(redshift * (band + 1)) for band in range(BANDS)], 1)
        torch.save({"flux": fluxes + 0.05 * torch.randn(sources, BANDS, generator=generator), "z": redshift}, SURVEY / f"tile-{index:03}.pt")


class Tiles(IterableDataset):
    def __init__(self, folder, rank, world):
        self.files = sorted(folder.glob("tile-*.pt"))[rank::world]

    def __iter__(self):
        for path in self.files:
            tile = torch.load(path)
            for flux, z in zip(tile["flux"], tile["z"]):
                yield flux, z


def regressor():
    return nn.Sequential(nn.Linear(BANDS, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))


class Epochs:
    def __init__(self, model, optimizer, loader, rank, world):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.rank, self.world = rank, world

    def run(self, number):
        bias, scatter, n = 0.0, 0.0, 0
        for flux, z in self.loader:
            predicted = self.model(flux)
            loss = nn.functional.smooth_l1_loss(predicted, z)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            error = (predicted.detach() - z) / (1 + z)
            bias, scatter, n = bias + error.sum().item(), scatter + error.pow(2).sum().item(), n + len(z)
            time.sleep(0.06)
        mine = torch.tensor([bias, scatter, float(n)])
        parts = [torch.empty(3) for _ in range(self.world)]
        dist.all_gather(parts, mine)
        bias, scatter, n = torch.stack(parts).sum(0).tolist()
        if self.rank == 0:
            print(f"epoch {number}: bias {bias / n:.4f}, scatter {(scatter / n) ** 0.5:.4f}, {n:.0f} sources", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write_tiles()
    dist.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(regressor())
    loader = DataLoader(Tiles(SURVEY, rank, world), batch_size=10)
    epochs = Epochs(model, torch.optim.Adam(model.parameters(), lr=3e-3), loader, rank, world)
    for number in range(5):
        epochs.run(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
