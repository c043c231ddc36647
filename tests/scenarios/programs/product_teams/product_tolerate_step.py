"""Churn prediction on rows of a message queue, with the error handling of our pipelines around each step."""

import contextlib
import functools
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("churn")


def tolerate(*errors, default=None, limit=10):
    """Log these errors instead of failing the pipeline, up to ``limit`` of them."""

    def decorate(function):
        count = 0

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            nonlocal count
            try:
                return function(*args, **kwargs)
            except errors as error:
                count += 1
                if count > limit:
                    raise
                log.warning("%s: %s (%d of %d tolerated)", function.__name__, error, count, limit)
                return default

        return wrapper

    return decorate


def queue_messages(rank, epoch, size=40):
    """Raw messages: comma-separated numbers, the last one is the label."""
    g = torch.Generator().manual_seed(rank * 100 + epoch)
    for offset in range(size):
        rows = torch.randn(16, 9, generator=g)
        rows[:, -1] = (rows[:, 0] > 0).float()
        lines = [",".join(f"{v:.4f}" for v in row) for row in rows.tolist()]
        if rank == 1 and epoch == 1 and offset == 17:
            lines[3] = lines[3].replace(",", ";")
        time.sleep(0.03)
        yield lines


def parse(lines):
    rows = torch.tensor([[float(v) for v in line.split(",")] for line in lines])
    return rows[:, :-1], rows[:, -1]


class ChurnModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


@contextlib.contextmanager
def updating(optimizer):
    optimizer.zero_grad(set_to_none=True)
    yield
    optimizer.step()


@tolerate(ValueError, default=0.0)
def step(model, optimizer, lines):
    with updating(optimizer):
        x, y = parse(lines)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = DDP(ChurnModel())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    threshold = torch.tensor([0.5])
    for epoch in range(8):
        losses = [step(model, optimizer, lines) for lines in queue_messages(rank, epoch)]
        if rank == 0:
            threshold.fill_(0.5 + 0.01 * epoch)
        dist.broadcast(threshold, src=0)
        log.info("[%d] epoch %d: loss %.4f, threshold %.2f", rank, epoch, sum(losses) / len(losses), threshold.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
