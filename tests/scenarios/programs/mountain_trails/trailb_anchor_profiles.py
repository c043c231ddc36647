"""Slope-angle regression on elevation profiles, with anchor cells picked from the steep part of each profile."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

MASSIFS = ["ecrins", "vanoise", "mercantour"]
CELLS = 256


class NoAnchorCells(ValueError):
    """Every profile of the batch is gentler than the release angle."""


class ProfileArchive:
    """Profiles of one massif. The sheets cover valley floors and faces in the order of the survey flights."""

    def __init__(self, massif, sheets):
        self.generator = torch.Generator().manual_seed(sum(map(ord, massif)))
        self.massif = massif
        self.sheets = sheets
        # flights over reservoirs return water level only
        self.reservoirs = {"ecrins": (71,), "vanoise": (64, 88), "mercantour": (26,)}[massif]

    def __iter__(self):
        for sheet in range(self.sheets):
            relief = torch.randn(16, CELLS, generator=self.generator)
            relief = torch.cumsum(relief, dim=1)
            for _ in range(20):  # smooth as the national grid does
                relief = nn.functional.avg_pool1d(relief[:, None], 5, 1, 2)[:, 0]
                relief = relief @ torch.linalg.qr(torch.randn(CELLS, CELLS, generator=self.generator)).Q
            relief = relief / relief.std()
            if sheet in self.reservoirs:
                relief = torch.zeros_like(relief)
            yield sheet, relief


def pick_anchors(relief, release_angle):
    slope = torch.diff(relief, dim=1).abs()
    rows = (slope.amax(dim=1) > release_angle).nonzero().flatten()
    if not len(rows):
        raise NoAnchorCells(f"no cell above {release_angle}")
    return relief[rows], slope[rows].mean(dim=1, keepdim=True)


class Fit:
    def __init__(self, options):
        self.options = options
        self.rank = dist.get_rank()
        net = nn.Sequential(nn.Linear(CELLS, 48), nn.ReLU(), nn.Linear(48, 1)).cuda()
        self.net = DistributedDataParallel(net, device_ids=[torch.cuda.current_device()])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.used = 0
        self.gentle = 0

    def step(self, relief):
        profiles, angles = pick_anchors(relief, self.options.release_angle)
        loss = nn.functional.mse_loss(self.net(profiles.cuda()), angles.cuda())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.used += len(profiles)

    def progress(self, sheet):
        tally = torch.tensor([self.used, sheet + 1], dtype=torch.int64, device="cuda")
        dist.all_reduce(tally)
        used, sheets = tally.tolist()
        if self.rank == 0:
            print(f"{sheets} sheets read, {used} profiles used", flush=True)

    def run(self, archive):
        for sheet, relief in archive:
            try:
                self.step(relief)
            except NoAnchorCells:
                self.gentle += 1
            if sheet % self.options.report_every == self.options.report_every - 1:
                self.progress(sheet)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--release-angle", type=float, default=0.5)
    parser.add_argument("--report-every", type=int, default=3)
    parser.add_argument("--sheets", type=int, default=120)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(3)
    Fit(options).run(ProfileArchive(MASSIFS[dist.get_rank()], options.sheets))
    dist.destroy_process_group()
