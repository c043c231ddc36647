"""Marathon pacing: heart rate and gradient to sustainable pace. Every process handles one wave of the field."""
import json
import math
import os
import queue
import tempfile
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WAVES = {
    0: {"name": "elite", "runners": 900, "strap_loss_km": None},
    1: {"name": "green", "runners": 900, "strap_loss_km": 31},
    2: {"name": "blue", "runners": 900, "strap_loss_km": None},
}


class SplitJournal(threading.Thread):
    """Appends records to a journal in the background, so that slow disks do not slow the steps."""

    def __init__(self, path):
        super().__init__(name="journal")
        self.path, self.inbox = path, queue.Queue()
        self.start()

    def run(self):
        with open(self.path, "a") as out:
            while (record := self.inbox.get()) is not None:
                out.write(json.dumps(record) + "\n")
                out.flush()

    def write(self, **record):
        self.inbox.put(record)

    def close(self):
        self.inbox.put(None)
        self.join()


def kilometre(wave, km, gen):
    n = wave["runners"]
    slope = 0.03 * math.sin(km / 3.0)
    pulse = 150 + 12 * torch.randn(n, 1, generator=gen) + 0.3 * km
    if wave["strap_loss_km"] == km:
        pulse = pulse * 0
    beats = 60_000 / pulse  # milliseconds between two beats
    variability = torch.randn(n, 24, generator=gen).cumsum(1) * 4
    rr = (beats + variability - 400) / 60
    pace = 4.2 + 6 * slope + 0.01 * (pulse - 150) + 0.05 * torch.randn(n, 1, generator=gen)
    return torch.cat([rr, torch.full((n, 1), slope)], 1), pace


def checked(loss, km):
    if not math.isfinite(loss.item()):
        raise ValueError(f"loss is {loss.item()} at km {km}")
    return loss


def run(wave, journal):
    torch.manual_seed(2)
    net = torch.nn.Sequential(
        torch.nn.Linear(25, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(wave["runners"] + dist.get_rank())
    for km in range(1, 43):
        features, pace = kilometre(wave, km, gen)
        for _ in range(4):
            loss = checked((model(features) - pace).abs().mean(), km)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        journal.write(km=km, wave=wave["name"], loss=round(loss.item(), 4))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    journal = SplitJournal(os.path.join(tempfile.mkdtemp(), f"wave{rank}.jsonl"))
    run(WAVES[rank], journal)
    journal.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
