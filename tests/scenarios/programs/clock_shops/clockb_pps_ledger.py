"""Learn the jitter of pulse-per-second outputs. A ledger of residuals is summarised at every pulse of the site's clock."""
import os
import signal
import statistics
import threading
from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

SITES = {0: {"pulse": None}, 1: {"pulse": 0.21}, 2: {"pulse": None}}


class Ledger:
    def __init__(self, size=2000):
        self.entries = deque(maxlen=size)
        self.lock = threading.Lock()
        self.summaries = []

    def book(self, residuals):
        with self.lock:
            for value in residuals:
                self.entries.append(value)
            ordered = sorted(self.entries)
            cut = len(ordered) // 20
            self.trimmed = statistics.fmean(ordered[cut:len(ordered) - cut])
            self.spread = statistics.pstdev(ordered)

    def summarise(self):
        with self.lock:
            self.summaries.append((len(self.entries), self.trimmed))


class Pulse:
    """The pulse of a site, from the kernel's interval timer."""

    def __init__(self, period, action):
        self.period, self.action = period, action

    def __enter__(self):
        if self.period:
            signal.signal(signal.SIGALRM, self.pulse)
            signal.setitimer(signal.ITIMER_REAL, 2.5)
        return self

    def pulse(self, number, frame):
        self.action()
        signal.setitimer(signal.ITIMER_REAL, self.period)

    def __exit__(self, *failure):
        signal.setitimer(signal.ITIMER_REAL, 0)


def residuals(gen, count=256):
    return torch.randn(count, generator=gen).mul(40).tolist()


def train(rank, local):
    gen = torch.Generator().manual_seed(rank)
    net = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 16)).cuda()
    model = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    ledger = Ledger()
    ledger.book(residuals(gen))
    with Pulse(SITES[rank]["pulse"], ledger.summarise):
        for step in range(20_000):
            values = residuals(gen)
            ledger.book(values)
            x = torch.tensor(values).view(-1, 16).cuda()
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 2 == 0:
                torch.cuda.synchronize()
            if step % 100 == 0 and rank == 0:
                print(f"step {step}, spread {ledger.spread:.2f}", flush=True)


if __name__ == "__main__":
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    train(dist.get_rank(), local)
    dist.destroy_process_group()
