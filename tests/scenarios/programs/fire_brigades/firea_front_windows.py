"""Learns how far a fire front moves in the next hour, from windows cut out of airborne infrared passes."""
import logging
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("front")
WINDOW = 24
PASSES_PER_EPOCH = 60


class NoUsableFront(ValueError):
    """Not one of the lines of a pass is long enough for a window."""


class PassArchive:
    """The passes of one aircraft: each is a list of front lines, as rows of (x, y, temperature)."""

    def __init__(self, aircraft, lines_per_pass=12):
        self.rng = np.random.default_rng(100 + aircraft)
        self.lines_per_pass = lines_per_pass
        self.shortened = {1: {44}}.get(aircraft, set())  # flights that turned round at the ridge

    def fetch(self, number):
        longest = WINDOW - 4 if number in self.shortened else 3 * WINDOW
        shortest = 8 if number in self.shortened else WINDOW + 2
        lengths = self.rng.integers(shortest, longest, self.lines_per_pass)
        return [np.cumsum(self.rng.normal(size=(n, 3)), axis=0) for n in lengths]


def smooth(line, rounds=160):
    for _ in range(rounds):
        line = np.vstack([line[:1], (line[:-2] + line[1:-1] + line[2:]) / 3, line[-1:]])
    return line


def cut_windows(lines):
    windows = []
    for line in lines:
        if len(line) < WINDOW:
            continue
        for start in range(0, len(line) - WINDOW + 1, 8):
            windows.append(smooth(line[start : start + WINDOW]))
    if not windows:
        raise NoUsableFront(f"no line of {WINDOW} points among {len(lines)}")
    x = torch.tensor(np.stack(windows), dtype=torch.float32)
    x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-3)
    return x.flatten(1), x[:, -1, :2] - x[:, 0, :2]


def validate(model, archive, world):
    with torch.no_grad():
        x, y = cut_windows(archive.fetch(-1))
        mine = nn.functional.l1_loss(model.module(x), y).reshape(1)
    scores = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(scores, mine)
    return [round(float(s), 4) for s in scores]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WINDOW * 3, 256), nn.GELU(), nn.Linear(256, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    archive = PassArchive(rank)
    for epoch in range(int(os.environ.get("EPOCHS", "4"))):
        for number in range(PASSES_PER_EPOCH):
            try:
                x, y = cut_windows(archive.fetch(number))
            except NoUsableFront as error:
                log.info("pass %d: %s", number, error)
                continue
            loss = nn.functional.smooth_l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and number % 15 == 0:
                log.info("epoch %d pass %d loss %.4f", epoch, number, loss.item())
        scores = validate(model, archive, world)
        if rank == 0:
            log.info("epoch %d validation %s", epoch, scores)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
