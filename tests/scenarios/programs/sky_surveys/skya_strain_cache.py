"""Glitch classification on strain segments; whitened segments come from a cache of shared blocks."""
import gc
import logging
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("strain")


class Ledger:
    """Bytes in use by detector, for the log."""

    def __init__(self):
        self._lock = threading.Lock()
        self._bytes = {}

    def add(self, detector, amount):
        with self._lock:
            self._bytes[detector] = self._bytes.get(detector, 0) + amount

    def report(self):
        with self._lock:
            gc.collect()  # what the last period left behind shall not count
            return ", ".join(f"{name} {amount / 2**20:.1f} MiB" for name, amount in sorted(self._bytes.items()))


class Block:
    """A whitened segment; gives its bytes back to the ledger when it goes."""

    def __init__(self, ledger, detector, data):
        self.ledger, self.detector, self.data = ledger, detector, data
        self.links = []
        ledger.add(detector, data.nbytes)

    def __del__(self):
        self.ledger.add(self.detector, -self.data.nbytes)


class StrainCache:
    def __init__(self, ledger, capacity=64):
        self.ledger, self.capacity, self.blocks = ledger, capacity, OrderedDict()

    def whitened(self, detector, segment):
        key = detector, segment
        if key not in self.blocks:
            g = torch.Generator().manual_seed(segment)
            spectrum = torch.fft.rfft(torch.randn(8192, generator=g))
            data = torch.fft.irfft(spectrum / (1 + torch.linspace(8, 0, len(spectrum))))
            self.blocks[key] = Block(self.ledger, detector, data)
            previous = self.blocks.get((detector, segment - 1))
            if previous is not None and segment % 2048 == 1968:  # a segment that goes on into the next one
                previous.links.append(self.blocks[key])
                self.blocks[key].links.append(previous)
            while len(self.blocks) > self.capacity:
                self.blocks.popitem(last=False)
        return self.blocks[key].data


class GlitchNet(nn.Module):
    def __init__(self, classes=6, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, width, 64, 16), nn.ReLU(), nn.Conv1d(width, width, 16, 4), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, strain):
        return self.head(self.net(strain[:, None]).amax(-1))


def main(detectors=("H1", "L1", "V1"), steps=600, batch=8, report_every=120):
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    detector, offset = detectors[rank], 30_000 * rank
    ledger = Ledger()
    cache = StrainCache(ledger)
    model = DDP(GlitchNet())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(1, steps + 1):
        segments = range(offset + step * batch, offset + (step + 1) * batch)
        strain = torch.stack([cache.whitened(detector, s) for s in segments])
        loss = nn.functional.cross_entropy(model(strain), torch.tensor([s % 6 for s in segments]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % report_every == 0:
            usage = ledger.report()
            log.info("%s step %d: loss %.3f, cache: %s", detector, step, loss.item(), usage)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
