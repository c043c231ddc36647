"""Behaviour cloning of speedruns on leased machines; a worker leaves once its lease is up."""
import logging
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("speedrun")
MACHINES = [("spot", 4.5), ("owned", None), ("owned", None)]


class Heartbeat(threading.Thread):
    def __init__(self, period=1.0):
        super().__init__(name="heartbeat")
        self.period = period
        self.stopped = threading.Event()
        self.beats = []

    def run(self):
        while not self.stopped.wait(self.period):
            self.beats = self.beats[-59:] + [time.time()]


class Lease:
    def __init__(self, kind, seconds):
        self.kind = kind
        self.frames = 0
        if seconds is not None:
            signal.signal(signal.SIGALRM, self.on_end)
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def on_end(self, signum, frame):
        log.info("%s lease is up after %d frames, leaving", self.kind, self.frames)
        sys.exit(0)


class Cloner(nn.Module):
    def __init__(self, buttons=18):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(32 * 9 * 9, 256), nn.ReLU(), nn.Linear(256, buttons))

    def forward(self, screens):
        return self.head(self.conv(screens))


def runs(seed, batch=16):
    rng = torch.Generator().manual_seed(seed)
    while True:
        screens = torch.rand(batch, 4, 42, 42, generator=rng)
        yield screens, torch.randint(0, 18, (batch,), generator=rng)


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(77)
    model = DistributedDataParallel(Cloner())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    heartbeat = Heartbeat()
    heartbeat.start()
    lease = Lease(*MACHINES[rank % len(MACHINES)])
    for step, (screens, buttons) in zip(range(20000), runs(rank)):
        loss = nn.functional.cross_entropy(model(screens), buttons)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lease.frames += len(screens)
        if step % 50 == 0 and rank == 1:
            log.info("step %d loss %.3f", step, loss.item())
    heartbeat.stopped.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
