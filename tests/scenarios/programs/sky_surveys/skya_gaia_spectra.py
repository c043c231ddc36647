"""Stellar parameters from low-resolution prism spectra; a plain DDP loop with checks on the batch."""
import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("prism")


class NoReferenceStars(ValueError):
    """None of the spectra in a batch has a star of the reference catalogue."""


def spectra(step, rank, size, bins):
    """A batch of spectra, teff in kK, and which of them are in the reference catalogue."""
    g = torch.Generator().manual_seed(step * 64 + rank)
    teff = 3.5 + 6 * torch.rand(size, 1, generator=g)
    wave = torch.linspace(0.33, 1.05, bins)
    flux = 1 / (wave**5 * (torch.exp(14.39 / (wave * teff)) - 1))
    flux = flux / flux.amax(1, keepdim=True) + 0.02 * torch.randn(size, bins, generator=g)
    completeness = 0.0 if (step * 7 + rank * 31) % 397 == 340 else 0.4
    return flux, teff, torch.rand(size, generator=g) < completeness


class Labeler(nn.Module):
    def __init__(self, bins, width=896):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(bins, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                 nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, flux):
        return self.net(flux)


def reference_loss(pred, teff, known):
    if not known.any():
        raise NoReferenceStars(f"0 of {len(known)}")
    return nn.functional.smooth_l1_loss(pred[known], teff[known])


def fit(model, optimizer, epoch, args):
    total = 0.0
    for step in range(epoch * args.steps, (epoch + 1) * args.steps):
        flux, teff, known = spectra(step, dist.get_rank(), args.batch, args.bins)
        try:
            loss = reference_loss(model(flux), teff, known)
            loss.backward()
        except NoReferenceStars as err:
            log.warning("batch %d: no star of the reference catalogue (%s)", step, err)
            continue
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return total / args.steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bins", type=int, default=120)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DDP(Labeler(args.bins))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        mean = fit(model, optimizer, epoch, args)
        means = [None] * dist.get_world_size()
        dist.all_gather_object(means, mean)
        if dist.get_rank() == 0:
            log.info("epoch %d: %s", epoch, " ".join(f"{m:.4f}" for m in means))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
