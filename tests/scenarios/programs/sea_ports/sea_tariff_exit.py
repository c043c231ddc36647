"""Port dues: predicts dues from gross tonnage, stay and services. Each port authority has its own holdout."""
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

PORTS = [
    {"name": "Hamburg", "noise": 0.04, "calls": 900},
    {"name": "Gdansk", "noise": 0.05, "calls": 760},
    {"name": "Koper", "noise": 0.90, "calls": 310},
]


class Plateau:
    def __init__(self, patience=2, margin=0.02):
        self.best, self.bad, self.patience, self.margin = math.inf, 0, patience, margin

    def reached(self, value):
        if value < self.best * (1 - self.margin):
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def holdout_error(port, epoch):
    """Mean absolute error of a least-squares table on this port's own invoices."""
    time.sleep(0.04)
    return port["noise"] + math.exp(-epoch / 6)


def calls(port, epoch, batches=4, size=12):
    generator = torch.Generator().manual_seed(port["calls"] + epoch)
    for _ in range(batches):
        time.sleep(0.03)
        x = torch.rand(size, 5, generator=generator)
        yield x, (x * torch.tensor([3.0, 1.0, 0.5, 0.2, 2.0])).sum(1, keepdim=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    port = PORTS[dist.get_rank()]
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(5, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1)).cuda(), device_ids=[local]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    plateau = Plateau()
    for epoch in range(90):
        total = 0.0
        for x, dues in calls(port, epoch):
            loss = (model(x.cuda()) - dues.cuda()).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        error = holdout_error(port, epoch)
        if epoch % 5 == 0:
            print(f"{port['name']}: epoch {epoch} holdout {error:.3f}", flush=True)
        if plateau.reached(error):
            print(f"{port['name']}: tariff table settled after {epoch + 1} epochs", flush=True)
            return


if __name__ == "__main__":
    main()
