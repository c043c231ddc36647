"""Radar rainfall composites feed an areal precipitation model; sweeps are decoded by a small pool."""
import math
import multiprocessing
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

SITES = {
    0: [("ridge", "c-band"), ("plain", "c-band")],
    1: [("coast", "c-band"), ("city", "x-band")],
    2: [("forest", "c-band"), ("border", "c-band")],
}
BINS = 90


class Antenna:
    """Keeps azimuth calibration current for short-range sets while they are in use."""

    def __init__(self):
        self.offset = 0.0
        self.stopped = threading.Event()

    def track(self):
        while not self.stopped.wait(0.5):
            self.offset = math.fmod(self.offset + 0.01, 1.0)


_antenna = None


def decode_sweep(task):
    global _antenna
    site, band, hour = task
    if band == "x-band" and hour >= 5 and _antenna is None:
        _antenna = Antenna()
        threading.Thread(target=_antenna.track).start()
    offset = _antenna.offset if _antenna else 0.0
    row = []
    for b in range(BINS):
        value = 0.0
        for k in range(1, 60):
            value += math.sin(hour + b / k + offset) / k
        row.append(max(value, 0.0))
    return site, row


class Composer:
    def __init__(self, sites):
        self.sites = sites

    def compose(self, hour):
        pool = multiprocessing.get_context("fork").Pool(2)
        sweeps = pool.map(decode_sweep, [(site, band, hour) for site, band in self.sites], chunksize=1)
        pool.close()
        pool.join()
        return {site: row for site, row in sweeps}  # noqa: C416


class ArealRain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(BINS, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.body(x)


def hour_of_training(model, optimizer, composite):
    rows = torch.tensor(list(composite.values()))
    for _ in range(30):
        sample = rows.repeat(16, 1) + 0.05 * torch.randn(32, BINS)
        loss = (model(sample).squeeze(1) - sample.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        grads = [p.grad for p in model.parameters()]
        for work in [dist.all_reduce(g, async_op=True) for g in grads]:
            work.wait()
        optimizer.step()
        time.sleep(0.01)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    torch.set_num_threads(1)
    composer = Composer(SITES[dist.get_rank() % 3])
    model = ArealRain()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for hour in range(24):
        composite = composer.compose(hour)
        loss = hour_of_training(model, optimizer, composite)
        if dist.get_rank() == 0:
            print(f"{hour:02d}:00 {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
