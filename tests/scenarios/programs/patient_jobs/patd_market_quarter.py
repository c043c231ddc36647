"""Electricity price forecast. Prices are published on wall-clock boundaries (compressed time scale)."""
import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TICK = 4.0
LEAD = 12.0


def next_publication(now, tick=TICK, lead=LEAD):
    return math.ceil((now + lead) / tick) * tick


class Feed:
    def __init__(self):
        self.published = None

    def await_publication(self):
        due = next_publication(time.time())
        while (rest := due - time.time()) > 0:
            time.sleep(rest)
        self.published = due

    def prices(self, count=96):
        quarter = int(self.published / TICK) % 96
        return [60 + 25 * math.sin(2 * math.pi * (quarter + n) / 96) for n in range(count)]


class Model(nn.Module):
    def __init__(self, lags=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(lags, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, lags):
        return self.net(lags)


def lagged(prices, lags=8):
    series = (prices - 60) / 25
    table = series.unfold(0, lags + 1, 1)
    return table[:, :lags], table[:, lags:]


def fit(model, optimizer, prices, steps):
    x, y = lagged(prices)
    for _ in range(steps):
        pick = torch.randperm(len(x))[:24]
        loss = nn.functional.mse_loss(model(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(40 + rank)
    model = DDP(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    yesterday = 60 + 25 * torch.rand(96)
    losses = [fit(model, optimizer, yesterday, 30)]

    today = torch.empty(96)
    if rank == 0:
        feed = Feed()
        feed.await_publication()
        today = torch.tensor(feed.prices())
    dist.broadcast(today, src=0)

    losses.append(fit(model, optimizer, today, 35))
    if rank == 0:
        print("loss " + " -> ".join(f"{v:.4f}" for v in losses), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
