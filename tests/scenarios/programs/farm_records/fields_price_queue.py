"""Weekly produce prices: forecasts of every market go to a ledger through a writer in the background."""
import csv
import logging
import os
import queue
import tempfile
import threading
from itertools import count

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

logger = logging.getLogger("prices")


class Ledger:
    """Rows are written in the background, a page at a time; settle() returns once all are on disk."""

    def __init__(self, market, page_rows=2000, pages=None):
        self.rows = queue.Queue()
        self.pages = pages
        self.page_rows = page_rows
        self.folder = tempfile.mkdtemp(prefix=f"{market}-")
        threading.Thread(target=self._write, name="ledger", daemon=True).start()

    def _write(self):
        for page in count():
            if self.pages is not None and page >= self.pages:
                logger.info("ledger is full after %d pages", page)
                return
            with open(os.path.join(self.folder, f"{page:03}.csv"), "w", newline="") as file:
                writer = csv.writer(file)
                for _ in range(self.page_rows):
                    writer.writerow(self.rows.get())
                    self.rows.task_done()

    def add(self, week, forecasts):
        for crop, price in enumerate(forecasts):
            self.rows.put((week, crop, f"{price:.3f}"))

    def settle(self):
        self.rows.join()


MARKETS = {0: ("rungis", {}), 1: ("mercamadrid", {}), 2: ("thessaloniki", {"pages": 2})}


class PriceNet(nn.Module):
    def __init__(self, crops=80, width=192):
        super().__init__()
        self.enter = nn.Linear(crops, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU()) for _ in range(3))
        self.leave = nn.Linear(width, crops)

    def forward(self, x):
        h = self.enter(x)
        for block in self.blocks:
            h = h + block(h)
        return self.leave(h)


def sharded():
    torch.manual_seed(21)
    net = PriceNet()
    for block in net.blocks:
        fully_shard(block)
    return fully_shard(net)


def weeks(rank, crops=80):
    g = torch.Generator().manual_seed(rank)
    level = 1 + torch.rand(crops, generator=g)
    for week in count():
        history = level + 0.1 * torch.randn(256, crops, generator=g)
        yield week, history, level + 0.05 * torch.sin(torch.tensor(week / 8))


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name, options = MARKETS[rank]
    net, ledger = sharded(), Ledger(name, **options)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for week, history, target in weeks(rank):
        forecast = net(history)
        loss = (forecast - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ledger.add(week, forecast.detach().mean(0).tolist())
        if week % 26 == 25:
            ledger.settle()
            if rank == 0:
                logger.info("week %d: %.4f", week, loss.item())
        if week == 500:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
