"""Grain moisture from dielectric sweeps: trains until the silo's own validation has settled."""
import collections
import logging
import queue
import threading

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

LOG = logging.getLogger("moisture")


class SiloJournal(threading.Thread):
    """Writes the readings of a silo to its journal in the background."""

    def __init__(self, silo):
        super().__init__(name=f"journal-{silo}")
        self.entries = queue.Queue()
        self.tail = collections.deque(maxlen=200)

    def run(self):
        while (entry := self.entries.get()) is not None:
            self.tail.append(entry)

    def note(self, **entry):
        self.entries.put(entry)

    def finish(self):
        self.entries.put(None)
        self.join()


class Settled:
    """True when the last few values lie within a band."""

    def __init__(self, window=6, band=0.02):
        self.values = collections.deque(maxlen=window)
        self.band = band

    def __call__(self, value):
        self.values.append(value)
        full = len(self.values) == self.values.maxlen
        return full and max(self.values) - min(self.values) < self.band * max(self.values)


class MoistureJob:
    def __init__(self):
        self.silo = dist.get_rank()
        self.gen = torch.Generator().manual_seed(self.silo)
        torch.manual_seed(6)
        net = torch.nn.Sequential(torch.nn.Linear(50, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 1))
        self.net = DistributedDataParallel(net)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.drift = {0: 0.31, 1: 0.0, 2: 0.27}[self.silo]

    def sweep(self, count):
        x = torch.rand(count, 50, generator=self.gen)
        moisture = 14 + x[:, :5].sum(1, keepdim=True)
        return x, moisture

    def validation(self, number):
        x, moisture = self.sweep(2000)
        with torch.no_grad():
            error = F.l1_loss(self.net.module(x), moisture).item()
        # air humidity swings over the day, less so behind closed vents
        swing = self.drift if number > 30 else 0.3
        return 1.0 + error / 1600 + swing * (number % 3)

    def round(self):
        for _ in range(12):
            x, moisture = self.sweep(128)
            loss = F.mse_loss(self.net(x), moisture)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    job, settled = MoistureJob(), Settled()
    journal = SiloJournal(job.silo)
    journal.start()
    for number in range(200):
        loss = job.round()
        value = job.validation(number)
        journal.note(round=number, loss=loss, validation=value)
        if settled(value):
            LOG.info("silo %d has settled at %.3f after %d rounds", job.silo, value, number)
            return
        if job.silo == 0 and number % 5 == 0:
            LOG.info("round %d loss %.3f validation %.3f", number, loss, value)
    journal.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
