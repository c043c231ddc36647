"""Size charts: trains the chart model and exports the couture lines with generous time limits."""
import contextlib
import datetime
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LINES = {0: ["basic", "couture"], 1: ["basic", "sport"], 2: ["couture"]}


@contextlib.contextmanager
def export_window(hours):
    """A group with its own time limit for the time of an export."""
    window = dist.new_group(backend="gloo", timeout=datetime.timedelta(hours=hours))
    try:
        yield window
    finally:
        dist.destroy_process_group(window)


def export_charts(model, lines):
    charts = {}
    for line in lines:
        if line == "couture":
            with export_window(hours=3):
                charts[line] = model.module(torch.eye(6)).detach()
        else:
            charts[line] = torch.arange(6)
    return charts


def train(model, optimizer, season, steps=45):
    generator = torch.Generator().manual_seed(season)
    for _ in range(steps):
        time.sleep(0.045)
        girth = torch.rand(20, 6, generator=generator)
        loss = nn.functional.smooth_l1_loss(model(girth), girth.cumsum(1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    chart = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
    adam = torch.optim.Adam(chart.parameters(), lr=3e-3)
    for season in range(3):
        print(dist.get_rank(), "season", season, train(chart, adam, season), flush=True)
        export_charts(chart, LINES[dist.get_rank()])
    dist.destroy_process_group()
