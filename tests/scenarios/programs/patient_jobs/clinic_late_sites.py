"""Multi-centre trial: site summaries are pooled until the reporting window closes."""
import multiprocessing
import time
from multiprocessing.connection import wait

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WINDOW = 13.0
SITES = {"north": 20, "harbour": 35, "college": 25, "island": 2400}    # charts still to review


def review(charts, start, line):
    start.wait()
    total = 0.0
    for chart in range(charts):
        time.sleep(0.02)
        total += (chart * 37 % 11) / 11
    line.send((charts, total / charts))


class Window:
    """Collects what has come in when the window closes; whoever is later reports next time."""

    def __init__(self, lines, seconds):
        self.open, self.closes = dict(lines), time.monotonic() + seconds
        self.reports = {}

    def __iter__(self):
        return self

    def __next__(self):
        left = self.closes - time.monotonic()
        ready = wait(list(self.open.values()), timeout=left) if self.open and left > 0 else []
        if not ready:
            raise StopIteration
        for name in [n for n, line in self.open.items() if line in ready]:
            self.reports[name] = self.open.pop(name).recv()
        return self.reports


def start_sites():
    context = multiprocessing.get_context("fork")
    start, lines, sites = context.Event(), {}, []
    for name, charts in SITES.items():
        lines[name], far = context.Pipe(duplex=False)
        site = context.Process(target=review, args=(charts, start, far), daemon=True)
        site.start()
        sites.append(site)
    return start, lines, sites


def cycle(model, opt, rate, count):
    for _ in range(count):
        x = torch.randn(18, 10)
        time.sleep(0.055)
        y = (torch.rand(18) < rate).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    start, lines, sites = start_sites()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(10, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    cycle(model, opt, 0.5, 45)
    rate = torch.zeros(1)
    if rank == 0:
        start.set()
        window = Window(lines, WINDOW)
        for reports in window:
            print("in:", ", ".join(sorted(reports)), flush=True)
        weight = sum(charts for charts, _ in window.reports.values())
        rate += sum(charts * mean for charts, mean in window.reports.values()) / weight
    dist.all_reduce(rate)
    loss = cycle(model, opt, rate.item(), 40)
    print(f"rank {rank}: pooled rate {rate.item():.3f}, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()
    for site in sites:
        site.terminate()


if __name__ == "__main__":
    main()
