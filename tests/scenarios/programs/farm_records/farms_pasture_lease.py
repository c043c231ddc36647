"""Pasture biomass from satellite time series on leased machines. Each machine trains until its lease is nearly over."""
import argparse
import json
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FLEET = json.loads("""[
    {"host": "meadow-1", "lease_s": 3600}, {"host": "meadow-2", "lease_s": 3600},
    {"host": "spot-7", "lease_s": 7},      {"host": "meadow-3", "lease_s": 3600}
]""")


class Lease:
    """Counts down with the interval timer, so that a slow batch is noticed as well."""

    def __init__(self, seconds, grace=1.0):
        self.ending = False
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds - grace))

    def _ring(self, signum, frame):
        self.ending = True


class SeriesNet(nn.Module):
    def __init__(self, bands=6, hidden=40):
        super().__init__()
        self.rnn = nn.GRU(bands, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def paddocks(rank, length=24, batch=64):
    gen = torch.Generator().manual_seed(40 + rank)
    while True:
        x = torch.randn(batch, length, 6, generator=gen).cumsum(1) * 0.2
        ndvi = (x[..., 3] - x[..., 2]) / (x[..., 3].abs() + x[..., 2].abs() + 1e-3)
        yield x, ndvi.mean(1, keepdim=True)


def close_down(host, steps, history):
    """Collect what each machine did for the invoice and the report."""
    report = {"host": host, "steps": steps, "mean": sum(history) / max(1, len(history))}
    reports = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(report, reports, dst=0)
    if reports:
        print(json.dumps(reports, indent=1), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=4000)
    parser.add_argument("--pace", type=float, default=0.06)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    machine = FLEET[rank]
    torch.set_num_threads(1)
    torch.manual_seed(2)
    model = DDP(SeriesNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    lease = Lease(machine["lease_s"])
    data, step, history = paddocks(rank), 0, []
    while step < args.max_steps and not lease.ending:
        x, y = next(data)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss.item())
        step += 1
        if rank == 0 and step % 25 == 0:
            print(f"{machine['host']}: step {step}, loss {history[-1]:.4f}", flush=True)
        time.sleep(args.pace)
    close_down(machine["host"], step, history)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
