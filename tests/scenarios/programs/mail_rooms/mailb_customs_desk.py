"""Duty estimates: three workers train; tables that a desk has asked for are printed in between, which may take its time."""
import contextlib
import csv
import logging
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("duty")
REQUESTS = {  # step -> desk that wants its table, by worker
    0: {},
    1: {95: "airport"},
    2: {},
}


@contextlib.contextmanager
def patience(hours):
    """Within this block the workers may take longer than the usual time limit."""
    group = dist.new_group(backend="gloo", timeout=timedelta(hours=hours))
    try:
        yield group
    finally:
        dist.barrier(group=group)
        dist.destroy_process_group(group)


class Desk:
    def __init__(self, worker):
        self.requests = REQUESTS[worker]

    def serve(self, step, model):
        desk = self.requests.get(step)
        if desk is None:
            return
        with patience(hours=3):
            self.print_table(desk, model)

    @torch.no_grad()
    def print_table(self, desk, model):
        grid = torch.cartesian_prod(*[torch.linspace(0, 1, 6)] * 4)
        duty = model.module(torch.cat([grid, grid], 1)).squeeze(1)
        with open(f"{desk}.csv", "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["weight", "value", "chapter", "origin", "duty"])
            for row, amount in zip(grid.tolist(), duty.tolist()):
                writer.writerow([*row, round(amount, 4)])


def goods(step, worker):
    g = torch.Generator().manual_seed(3 * step + worker)
    x = torch.rand(256, 8, generator=g)
    tariff = torch.rand(300, 300, generator=g).softmax(-1)
    for _ in range(25):
        tariff = (tariff @ tariff.T).softmax(-1)
    return x, x[:, :1] * x[:, 1:2] + tariff.mean()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    worker = dist.get_rank()
    torch.manual_seed(13)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 120), nn.ReLU(), nn.Linear(120, 1)))
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    desk = Desk(worker)
    for step in range(240):
        x, duty = goods(step, worker)
        loss = nn.functional.smooth_l1_loss(model(x), duty)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        desk.serve(step, model)
        if worker == 0 and step % 40 == 0:
            logger.info("step %d loss %.5f", step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
