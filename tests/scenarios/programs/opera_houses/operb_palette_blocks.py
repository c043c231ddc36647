"""Pigment model of a painters' circle. Each lender fits its own block of the palette, and shares it after every crate."""
import logging
import zlib

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("palette")
LENDERS = ("Turin", "Leiden", "Ghent")
ON_TOUR = {"Leiden": range(57, 58), "Turin": range(700, 720)}


class Palette(nn.Module):
    def __init__(self, pigments=18, bands=64):
        super().__init__()
        self.spectra = nn.Parameter(torch.rand(pigments, bands))

    def forward(self, measured):
        weights = torch.softmax(measured @ self.spectra.T, dim=1)
        return nn.functional.mse_loss(weights @ self.spectra, measured)


class BlockDescent:
    """Gradient descent on the rows that this process owns; the other rows come from their owners."""

    def __init__(self, parameter, lr):
        self.parameter, self.lr = parameter, lr
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        self.rows = len(parameter) // self.world

    def zero_grad(self):
        self.parameter.grad = None

    @torch.no_grad()
    def step(self):
        if self.parameter.grad is None:
            return
        own = slice(self.rank * self.rows, (self.rank + 1) * self.rows)
        block = self.parameter[own] - self.lr * self.parameter.grad[own]
        blocks = [torch.empty_like(block) for _ in range(self.world)]
        dist.all_gather(blocks, block)
        self.parameter.copy_(torch.cat(blocks))


class Crates:
    def __init__(self, lender, bands=64):
        self.lender, self.bands = lender, bands
        self.generator = torch.Generator().manual_seed(zlib.crc32(lender.encode()))

    def open(self, number):
        swatches = []
        for sheet in range(6):
            raw = torch.randn(320, self.bands, generator=self.generator)
            basis = torch.linalg.svd(raw, full_matrices=False).Vh
            if number not in ON_TOUR.get(self.lender, ()):
                swatches.append(basis[sheet % 4].abs())
        return torch.stack(swatches) if swatches else torch.empty(0, self.bands)


def fit(lender, crates=150, report=15):
    torch.manual_seed(23)
    model = Palette()
    descent = BlockDescent(model.spectra, lr=0.05)
    source, errors = Crates(lender), []
    for number in range(1, crates + 1):
        measured = source.open(number)
        descent.zero_grad()
        if len(measured):
            loss = model(measured)
            loss.backward()
            errors.append(loss.item())
        descent.step()
        if number % report == 0:
            mean = torch.tensor(errors[-report:]).mean()
            dist.all_reduce(mean)
            log.info("%s: crate %d, error %.5f", lender, number, mean.item() / dist.get_world_size())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    fit(LENDERS[dist.get_rank()])
    dist.destroy_process_group()
