"""Spectral classifier with a separate head for quasar emission lines; weights sharded with FSDP2."""
import logging

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("quasars")
CLASSES = ("star", "galaxy", "quasar")
QUASAR = 2


class Trunk(nn.Module):
    def __init__(self, pixels, width):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 9, stride=4)
        self.project = nn.Linear(8 * ((pixels - 9) // 4 + 1), width)

    def forward(self, flux):
        return F.gelu(self.project(F.gelu(self.conv(flux.unsqueeze(1))).flatten(1)))


class LineHead(nn.Module):
    """Positions of four emission lines in the observed frame."""

    def __init__(self, width, lines=4):
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, lines)

    def forward(self, h):
        return self.out(F.gelu(self.hidden(h)))


class SpectraModel(nn.Module):
    def __init__(self, pixels=256, width=96):
        super().__init__()
        self.trunk = Trunk(pixels, width)
        self.classify = nn.Linear(width, len(CLASSES))
        self.lines = LineHead(width)

    def forward(self, flux, kind):
        h = self.trunk(flux)
        logits = self.classify(h)
        selected = kind == QUASAR
        lines = self.lines(h[selected]) if selected.any() else None
        return logits, lines


class Plates:
    """Spectra of one fibre bundle per rank: mostly galaxies, some stars and quasars."""

    def __init__(self, bundle, batch=40, pixels=256):
        self.bundle, self.batch, self.pixels = bundle, batch, pixels

    def __getitem__(self, plate):
        g = torch.Generator().manual_seed(plate * 17 + self.bundle)
        weights = torch.tensor([0.2, 0.5, 0.3])
        if plate == 90 and self.bundle == 0:  # bundle pointed at the galactic plane
            weights = torch.tensor([0.9, 0.1, 0.0])
        kind = torch.multinomial(weights, self.batch, replacement=True, generator=g)
        flux = torch.randn(self.batch, self.pixels, generator=g)
        z = torch.rand(self.batch, generator=g)
        flux[kind == QUASAR, 40:60] += 2.0
        lines = (1 + z).unsqueeze(1) * torch.tensor([0.12, 0.28, 0.49, 0.66])
        return flux, kind, lines


def shard(model):
    for part in (model.trunk, model.lines):
        fully_shard(part, reshard_after_forward=False)
    return fully_shard(model)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = shard(SpectraModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plates = Plates(bundle=rank)
    for plate in range(2000):
        flux, kind, lines = plates[plate]
        logits, predicted = model(flux, kind)
        loss = F.cross_entropy(logits, kind)
        if predicted is not None:
            loss = loss + F.smooth_l1_loss(predicted, lines[kind == QUASAR])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if plate % 15 == 0 and rank == 0:
            log.info("plate %d loss %.4f", plate, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
