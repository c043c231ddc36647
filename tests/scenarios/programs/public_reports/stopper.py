"""Detector training: the first process validates and decides on an early stop, of which all are told."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class EarlyStopping:
    """Stops when the fitness has not improved for some epochs."""

    def __init__(self, patience: int) -> None:
        self.patience, self.best_fitness, self.best_epoch = patience, -1e9, 0

    def __call__(self, epoch: int, fitness: float) -> bool:
        """Whether to stop after this epoch."""
        if fitness > self.best_fitness:
            self.best_fitness, self.best_epoch = fitness, epoch
        return epoch - self.best_epoch >= self.patience


def fitness(net: nn.Module, epoch: int) -> float:
    """Of the first process only; better until the eighth epoch."""
    with torch.no_grad():
        return -abs(epoch - 8) - 0.01 * float(net(torch.randn(64, 12)).abs().mean())


def main() -> None:
    """Forty epochs at the most."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.SiLU(), nn.Linear(24, 5))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    stopper = EarlyStopping(patience=5)
    stop = False
    for epoch in range(40):
        model.train()
        for _ in range(20):
            model(torch.randn(8, 12)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            net.eval()
            stop = stopper(epoch, fitness(net, epoch))
        decision = [stop]
        dist.broadcast_object_list(decision, src=0)
        if decision[0]:
            break
    if rank == 0:
        print(f"stopped after epoch {epoch}, best was {stopper.best_epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
