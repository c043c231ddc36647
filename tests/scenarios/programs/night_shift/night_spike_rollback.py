"""Regression with a guard that rolls back to the last snapshot when the loss jumps."""
import copy
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


class SpikeGuard:
    """Keeps a running mean of the loss and a snapshot of the weights."""

    def __init__(self, model, factor=6.0, every=10):
        self.model, self.factor, self.every = model, factor, every
        self.mean, self.snapshot = None, None

    def observe(self, step, loss):
        if self.mean is not None and loss > self.factor * self.mean:
            logging.info("step %d: loss %.2f against %.2f, rolling back", step, loss, self.mean)
            self.rollback()
            return True
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        if step % self.every == 0:
            self.snapshot = copy.deepcopy(self.model.module.state_dict())
        return False

    def rollback(self):
        self.model.module.load_state_dict(self.snapshot)
        for parameter in self.model.module.parameters():
            dist.broadcast(parameter.data, src=0)


def stream(rank):
    torch.manual_seed(rank)
    weight = torch.linspace(-1, 1, 16)
    step = 0
    while True:
        x = torch.randn(64, 16)
        if rank == 1 and step == 37:
            x = x * 40
        yield x, x @ weight
        step += 1


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    guard = SpikeGuard(model)
    for step, (x, y) in enumerate(stream(rank)):
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        if guard.observe(step, loss.item()):
            optimizer.state.clear()
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        time.sleep(0.08)
        if rank == 0 and step % 10 == 0:
            logging.info("step %d loss %.3f", step, loss.item())


if __name__ == "__main__":
    main()
