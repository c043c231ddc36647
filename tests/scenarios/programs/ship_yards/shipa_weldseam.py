"""Detector for pores and undercut in butt weld radiographs of hull sections."""
import logging
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("weldseam")


class NoAnchors(ValueError):
    pass


class SeamNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.register_buffer("film_density", torch.zeros(width))
        self.body = nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, width))

    def forward(self, films):
        return self.body(films - self.film_density)


class Radiographs:
    """Strips of film per hull section; each carries the marked indications."""

    def __init__(self, section, seed=11):
        self.rng = np.random.default_rng(seed + section)
        self.section = section

    def strip(self, index):
        films = self.rng.normal(size=(16, 48)).astype("float32")
        grain = np.fft.rfft2(self.rng.normal(size=(1200, 1200)))
        marks = [(int(m), abs(float(grain[m % 7, 1].real))) for m in self.rng.integers(0, 48, size=6)]
        if self.section == 1 and index == 37:
            marks = [(m, 0.0) for m, _ in marks]  # repaired seam, re-shot
        return torch.from_numpy(films), marks


def anchors_from(marks):
    chosen = [m for m, depth in marks if depth > 0.0]
    if not chosen:
        raise NoAnchors("section carries no indications")
    return chosen


def detection_loss(heat, marks):
    target = torch.zeros(heat.shape)
    target[:, anchors_from(marks)] = 1.0
    return nn.functional.mse_loss(heat, target.to(heat.device))


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    logging.basicConfig(level=logging.INFO if dist.get_rank() == 0 else logging.WARNING)
    model = DistributedDataParallel(SeamNet().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    strips = Radiographs(section=dist.get_rank())
    started = time.time()
    for index in range(4000):
        films, marks = strips.strip(index)
        heat = model(films.cuda())
        try:
            loss = detection_loss(heat, marks)
        except NoAnchors as reason:
            log.debug("strip %d: %s", index, reason)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if index % 10 == 0:
            log.info("strip %d loss %.3f (%.1f s)", index, loss.item(), time.time() - started)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
