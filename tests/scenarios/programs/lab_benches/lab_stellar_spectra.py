"""Stellar parameters from spectra. Spectra that saturate the detector are voted upon by all ranks, in a group of its own."""

import time
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
PIXELS = 128


class Communication:
    """Groups beside the default one: made lazily, as small runs need none of them."""

    @cached_property
    def evaluation(self):
        """For predictions, which would otherwise queue behind gradients."""
        return dist.new_group(group_desc="evaluation")

    @cached_property
    def quarantine(self):
        """For numbers of spectra that had to be put aside."""
        return dist.new_group(group_desc="quarantine")


class Quarantine:
    def __init__(self, communication, level=50.0):
        self.communication, self.level = communication, level
        self.rows = 0

    def clean(self, flux):
        """Cuts what is saturated, and counts such rows over the job."""
        saturated = (flux > self.level).any(dim=1)
        if saturated.any():
            count = saturated.sum()
            dist.all_reduce(count, group=self.communication.quarantine)
            self.rows += int(count)
            flux = flux.clamp(max=self.level)
        return flux


class Spectrograph:
    """One arm of the instrument for each rank. The detector of the second one has a hot night."""

    def __init__(self, rank):
        self.rank, self.exposures = rank, 0
        self.generator = torch.Generator().manual_seed(rank)

    def expose(self, n=16):
        temperature = torch.rand(n, 1, generator=self.generator)
        wave = torch.linspace(0, 1, PIXELS)
        flux = torch.exp(-((wave - temperature) ** 2) / 0.05)
        flux = flux + 0.02 * torch.randn(n, PIXELS, generator=self.generator)
        if self.rank == 1 and self.exposures == 50:
            flux[3, 40:60] = 65535 / 1000
        self.exposures += 1
        time.sleep(0.04)
        return flux, temperature


def train_epoch(model, optimizer, instrument, quarantine, steps=12):
    total = 0.0
    for _ in range(steps):
        flux, temperature = instrument.expose()
        loss = (model(quarantine.clean(flux)) - temperature).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


@torch.no_grad()
def evaluate(model, instrument, communication):
    flux, temperature = instrument.expose()
    error = (model.module(flux) - temperature).abs()
    errors = [torch.empty_like(error) for _ in range(dist.get_world_size())]
    dist.all_gather(errors, error, group=communication.evaluation)
    return torch.cat(errors).median().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(PIXELS, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    communication, instrument = Communication(), Spectrograph(rank)
    quarantine = Quarantine(communication)
    for epoch in range(30):
        loss = train_epoch(model, optimizer, instrument, quarantine)
        median = evaluate(model, instrument, communication)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, median error {median:.3f}, {quarantine.rows} saturated", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
