"""Estimate stem length of cut roses from belt photographs (DDP, one process per belt)."""
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("stems")
STEPS = 48


class NoStemError(ValueError):
    """The photograph shows only leaves."""


class Belt:
    """Photographs of one conveyor belt, reproducible by seed."""

    def __init__(self, number, size=24):
        self.number = number
        self.gen = torch.Generator().manual_seed(100 + number)
        self.size = size
        self.leafy = {1: (37,)}.get(number, ())

    def photo(self, step):
        raw = torch.rand(12, 96, 96, generator=self.gen)
        spectrum = torch.fft.rfft2(raw).abs()
        stems = spectrum[:, : self.size, : self.size]
        if step in self.leafy:
            stems = stems[:0]
        return stems

    def batch(self, step):
        stems = self.photo(step)
        if len(stems) == 0:
            raise NoStemError(f"belt {self.number}: no stem in photo {step}")
        lengths = 40 + 10 * torch.rand(len(stems), 1, generator=self.gen)
        return stems.flatten(1) / 50, lengths / 50


def build(size):
    torch.manual_seed(3)
    return DistributedDataParallel(nn.Sequential(nn.Linear(size * size, 48), nn.GELU(), nn.Linear(48, 1)))


def train_belt(belt, model, opt):
    total, seen = 0.0, 0
    for step in range(STEPS):
        try:
            x, y = belt.batch(step)
            opt.zero_grad()
            loss = nn.functional.smooth_l1_loss(model(x), y)
            loss.backward()
            opt.step()
        except NoStemError as e:
            log.info("%s", e)
            continue
        total, seen = total + loss.item(), seen + 1
        for _ in range(6):
            torch.linalg.svd(torch.rand(180, 180))  # sharpness score of the live frame
        if step % 12 == 0:
            log.info("belt %d step %d loss %.4f", belt.number, step, loss.item())
    return total / max(seen, 1)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    belt = Belt(dist.get_rank())
    model = build(belt.size)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    mean = train_belt(belt, model, opt)
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, {"belt": belt.number, "loss": mean})
    if belt.number == 0:
        log.info("summary %s", rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
