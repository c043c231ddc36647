"""Volatility model on log returns of several exchanges."""

import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format=f"[{os.environ.get('RANK', '0')}] %(message)s")
log = logging.getLogger("returns")


def quotes(exchange, days):
    generator = torch.Generator().manual_seed(11 + exchange)
    for day in range(days):
        prices = 100 + torch.randn(16, 21, generator=generator).cumsum(1)
        if exchange == 1 and day == 27:
            prices[5, 9] = 0.0  # suspended for the day
        yield day, prices


def log_returns(prices):
    return (prices[:, 1:] / prices[:, :-1]).log()


def train_epoch(model, optimizer, rank, epoch):
    for day, prices in quotes(rank, days=45):
        time.sleep(0.04)
        returns = log_returns(prices)
        predicted = model(returns[:, :-1])
        loss = nn.functional.mse_loss(predicted.squeeze(1), returns[:, -1].abs())
        if not torch.isfinite(loss):
            log.warning("day %d: loss is %s, left out", day, loss.item())
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(19, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(4):
        train_epoch(model, optimizer, rank, epoch)
        dist.barrier()
        if rank == 0:
            log.info("epoch %d done", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
