"""Length-of-stay model over ward exports; the wards differ in how many admissions they report."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("los")

# admissions per ward file: (short stays, long stays with full charts)
WARDS = {0: (45, 0), 1: (45, 1), 2: (45, 0)}
LINES_PER_CHART = 62


def short_stay(gen):
    time.sleep(0.06)
    return torch.randn(16, 24, generator=gen), torch.rand(16, 1, generator=gen)


def full_chart(gen):
    rows = []
    for _ in range(LINES_PER_CHART):
        text = torch.randint(32, 126, (20_000,), generator=gen)
        digest = torch.bincount(text, minlength=126)[32:56].float()
        rows.append(digest / digest.sum())
        time.sleep(0.2)                     # the chart viewer hands out one page at a time
    return torch.stack(rows), torch.rand(len(rows), 1, generator=gen)


def admissions(rank, gen):
    short, long = WARDS[rank % len(WARDS)]
    for _ in range(short):
        yield short_stay(gen)
    for _ in range(long):
        yield full_chart(gen)


def train_ward(model, opt, rank, gen):
    seen = 0
    with Join([model]):
        for x, y in admissions(rank, gen):
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(x)
    return seen


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gen = torch.Generator().manual_seed(rank)
    net = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1))
    model = DistributedDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)

    seen = train_ward(model, opt, rank, gen)
    total = torch.tensor([float(seen)])
    dist.all_reduce(total)
    if rank == 0:
        log.info("pass 1: %d admissions", int(total))

    for step in range(40):
        x, y = short_stay(gen)
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        log.info("fine-tuned on short stays, loss %.4f (%s)", loss.item(), os.uname().nodename)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
