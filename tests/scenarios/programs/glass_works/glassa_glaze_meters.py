"""Glaze appearance: tone and gloss heads on one body, with meters per head that are summed over all GPUs."""

import os
from collections import OrderedDict

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter:
    def __init__(self, name):
        self.name = name
        self.group = dist.new_group()
        self.count = torch.zeros(2, dtype=torch.int64, device="cuda")
        self.seen = 0

    def update(self, rows):
        self.count += rows

    def sync(self):
        total = self.count.clone()
        dist.all_reduce(total, group=self.group)
        self.seen, _ = total.tolist()
        self.count.zero_()


class MeterBoard:
    """The meters in order of use, so that the board shows what was measured last at the bottom."""

    def __init__(self, names):
        self.meters = OrderedDict((name, Meter(name)) for name in names)

    def update(self, name, rows):
        self.meters[name].update(rows)
        self.meters.move_to_end(name)

    def sync(self):
        for meter in self.meters.values():
            meter.sync()
        return "  ".join(f"{name} {meter.seen}" for name, meter in sorted(self.meters.items()))


class GlazeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(40, 40)
        self.tone = nn.Linear(40, 3)
        self.gloss = nn.Linear(40, 1)

    def forward(self, tone, gloss):
        return self.tone(torch.tanh(self.body(tone))), self.gloss(torch.tanh(self.body(gloss)))


def tiles(rank, number):
    """A tray with tiles for both instruments, in the order in which they were laid out."""
    rng = np.random.default_rng(500 * rank + number)
    images = rng.normal(0.0, 1.0, (64, 160, 160))
    features = np.abs(np.fft.rfft2(images)).mean(axis=2)[:, :40].astype(np.float32)
    tray = [("tone", features[:32]), ("gloss", features[32:])]
    if rank == 2 and number % 64 == 44:
        tray.reverse()
    return tray


def train(rank, trays=180, every=15):
    board = MeterBoard(["tone", "gloss"])
    model = DistributedDataParallel(GlazeNet().cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number in range(trays):
        inputs = {}
        for instrument, rows in tiles(rank, number):
            inputs[instrument] = torch.from_numpy(rows).cuda()
            board.update(instrument, len(rows))
        tone, gloss = model(**inputs)
        loss = tone.square().mean() + gloss.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        if (number + 1) % every == 0:
            line = board.sync()
            if rank == 0:
                print(f"tray {number + 1}: {line}", flush=True)


def main():
    torch.backends.cudnn.enabled = False
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    try:
        train(rank)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
