"""Thin-film stack model in three stages, one GPU each: substrate, layers, colour. Activations go from stage to stage."""

import logging
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
MICRO, WIDTH, SPECTRUM = 4, 48, 31


@dataclass(frozen=True)
class Lot:
    number: int
    panes: int

    def arrays(self):
        rng = np.random.default_rng(self.number)
        scans = rng.normal(0.0, 1.0, (self.panes, 64, 1536))
        features = np.abs(np.fft.rfft(scans, axis=2)).mean(axis=1)[:, :WIDTH]
        return features.astype(np.float32), rng.random((self.panes, SPECTRUM), dtype=np.float32)


def schedule(lots=120):
    # an occasional lot is smaller: the sputter line is vented then
    return [Lot(n, 14 if n % 50 == 49 else 16) for n in range(lots)]


def padded(array, start):
    part = torch.zeros(MICRO, array.shape[1])
    rows = torch.from_numpy(array[start : start + MICRO])
    part[: len(rows)] = rows
    return part.cuda()


class Stage:
    def __init__(self, rank):
        self.rank = rank
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).cuda()

    def lot(self, lot):
        raise NotImplementedError


class Substrate(Stage):
    @torch.no_grad()
    def lot(self, lot):
        features, colours = lot.arrays()
        for start in range(0, lot.panes, MICRO):
            dist.send(self.net(padded(features, start)), dst=1)
            dist.send(padded(colours, start), dst=2)


class Layers(Stage):
    @torch.no_grad()
    def lot(self, lot):
        for _ in range(math.ceil(lot.panes / MICRO)):
            x = torch.empty(MICRO, WIDTH, device="cuda")
            dist.recv(x, src=0)
            dist.send(self.net(x), dst=2)


class Colour(Stage):
    def __init__(self, rank):
        super().__init__(rank)
        self.head = nn.Linear(WIDTH, SPECTRUM).cuda()
        parameters = [*self.net.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.01)
        self.total = torch.zeros(1, device="cuda")

    def lot(self, lot):
        self.total.zero_()
        for _ in range(lot.panes // MICRO):
            x = torch.empty(MICRO, WIDTH, device="cuda")
            y = torch.empty(MICRO, SPECTRUM, device="cuda")
            dist.recv(x, src=1)
            dist.recv(y, src=0)
            loss = (self.head(self.net(x)) - y).abs().mean()
            loss.backward()
            self.total += loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    torch.backends.cudnn.enabled = False
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    stage = (Substrate, Layers, Colour)[rank](rank)
    for lot in schedule():
        stage.lot(lot)
        shown = stage.total if rank == 2 else torch.zeros(1, device="cuda")
        dist.broadcast(shown, src=2)
        error = shown.item()
        if rank == 0 and lot.number % 10 == 0:
            logging.info("lot %d: colour error %.3f", lot.number, error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
