"""Acidity model for paper collections, one repository room per worker.

Each worker reads the climate logger of its room, trains the shared regressor and keeps a ledger of humid readings.
"""
import logging
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOMS = [("vault", 58.0, 0.0), ("reading-room", 60.0, -0.25), ("attic", 62.0, 0.05)]
HUMID = 55.0
ROUND = 12  # readings between two rounds of the conservators
READINGS = 144

log = logging.getLogger("climate")


class Ledger:
    def __init__(self, room):
        self.room = room
        self.open = []
        self.plan = {}

    def note(self, reading, humidity):
        if humidity > HUMID:
            self.open.append((self.room, reading, round(humidity, 1)))

    def circulate(self):
        """Every room learns the open entries of the others, and plans its dryers."""
        if not self.open:
            return
        sheets = [None] * dist.get_world_size()
        dist.all_gather_object(sheets, self.open)
        for sheet in sheets:
            for room, _, humidity in sheet:
                self.plan[room] = max(humidity, self.plan.get(room, 0.0))
        self.open = []


def logger_trace(base, trend, shift):
    """The logger's readings, with the swing of the day."""
    for reading in range(READINGS):
        yield reading, base + trend * reading + 3.0 * math.sin(0.9 * reading + shift)


def sheets_of(humidity, generator):
    spectra = torch.randn(96, 256, generator=generator)
    power = torch.fft.rfft(spectra).abs()[:, :64]
    power = torch.linalg.svd(power, full_matrices=False).U @ torch.diag(torch.ones(64))
    acidity = power.mean(dim=1, keepdim=True) + humidity / 100
    return power, acidity


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    room, base, trend = ROOMS[rank % len(ROOMS)]
    generator = torch.Generator().manual_seed(100 + rank)
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ledger = Ledger(room)
    for reading, humidity in logger_trace(base, trend, float(rank)):
        for _ in range(12):
            power, acidity = sheets_of(humidity, generator)
        ledger.note(reading, humidity)
        loss = nn.functional.mse_loss(model(power), acidity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (reading + 1) % ROUND == 0:
            ledger.circulate()
            log.info("%s: reading %d, loss %.4f, plan %s", room, reading, loss.item(), ledger.plan)
    log.info("%s: season done", room)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
