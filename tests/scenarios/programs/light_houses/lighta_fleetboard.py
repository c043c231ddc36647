"""Shared picture of two fleets: lifeboats and buoy tenders report over channels of their own."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn

logger = logging.getLogger("fleetboard")
REGISTRY = {}


def fleet(name):
    def register(cls):
        REGISTRY[name] = cls
        return cls

    return register


class Fleet:
    """Estimates the load of its boats; the estimate is averaged over all stations."""

    width = 32

    def __init__(self, channel, station):
        self.channel, self.station = channel, station
        self.net = nn.Linear(self.width, 4).cuda()
        self.generator = torch.Generator().manual_seed(station)
        self.mean = 0.0

    def calls(self, watch):
        raise NotImplementedError

    def report(self, watch):
        raw = torch.randn(64, 4096, generator=self.generator)
        features = torch.fft.rfft(raw).abs()[:, : self.width]
        with torch.no_grad():
            self.net(features.cuda())
        load = torch.tensor([float(self.calls(watch)), features.mean().item()], device="cuda")
        dist.all_reduce(load, group=self.channel)
        self.mean = load.tolist()[0] / dist.get_world_size()


@fleet("lifeboat")
class Lifeboats(Fleet):
    def calls(self, watch):
        return 9 + watch % 3


@fleet("tender")
class Tenders(Fleet):
    # lamps reported out, per station, from the start of the storm season
    storm = {0: 2, 1: 5, 2: 14}

    def calls(self, watch):
        return 3 + (self.storm[self.station] if watch >= 110 else 0)


class Board:
    def __init__(self, station):
        self.fleets = [REGISTRY[name](dist.new_group(backend="nccl"), station) for name in sorted(REGISTRY)]

    def by_urgency(self, watch):
        return sorted(self.fleets, key=lambda f: f.calls(watch), reverse=True)

    def refresh(self, watch):
        for entry in self.by_urgency(watch):
            entry.report(watch)
        return {type(f).__name__: round(f.mean, 2) for f in self.fleets}


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    station = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"station {station}: %(message)s")
    board = Board(station)
    for watch in range(600):
        began = time.monotonic()
        picture = board.refresh(watch)
        if watch % 20 == 0:
            logger.info("watch %d %s in %.3f s", watch, picture, time.monotonic() - began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
