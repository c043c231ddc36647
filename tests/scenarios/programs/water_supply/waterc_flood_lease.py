"""Flood stage ensemble on leased machines: a machine may stop at the end of its lease, the run resumes from its file."""
import json
import logging
import pathlib
import queue
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOSTS = [
    {"host": "dam-a", "lease_s": 3600},
    {"host": "dam-b", "lease_s": 6},
    {"host": "dam-c", "lease_s": 3600},
]
log = logging.getLogger("flood")


class Lease:
    def __init__(self, seconds):
        self.over = False
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _on_alarm(self, signum, frame):
        self.over = True


class Telemetry(threading.Thread):
    """Writes one line per record; other threads only put into the queue."""

    def __init__(self, path):
        super().__init__(name="telemetry")
        self.records = queue.Queue()
        self.path = path

    def run(self):
        with self.path.open("w") as out:
            for record in iter(self.records.get, None):
                out.write(json.dumps(record) + "\n")
                out.flush()

    def close(self):
        self.records.put(None)
        self.join()


def hydrographs(gen, n=48):
    time.sleep(0.04)
    rain = torch.rand(n, 24, generator=gen)
    kernel = torch.exp(-torch.arange(24) / 6.0).flip(0)
    return rain, (rain * kernel).sum(1, keepdim=True)


def train(rank, telemetry, folder, steps=2000):
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(24, 80), nn.Tanh(), nn.Linear(80, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    gen = torch.Generator().manual_seed(rank)
    lease = Lease(HOSTS[rank]["lease_s"])
    for step in range(steps):
        if lease.over:
            torch.save(net.module.state_dict(), folder / f"resume-{rank}.pt")
            log.info("%s: lease over after %d steps", HOSTS[rank]["host"], step)
            return
        rain, stage = hydrographs(gen)
        loss = (net(rain) - stage).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        telemetry.records.put({"step": step, "loss": loss.item()})
    telemetry.close()
    dist.destroy_process_group()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="flood_"))
    telemetry = Telemetry(folder / f"telemetry-{rank}.jsonl")
    telemetry.start()
    train(rank, telemetry, folder)


if __name__ == "__main__":
    main()
