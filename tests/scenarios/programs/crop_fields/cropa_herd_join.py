"""Herd activity from collar sensors: farms differ in the number of animals, DDP's join lets all of them take part."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

logger = logging.getLogger("herd")


class CollarNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 96, num_layers=2, batch_first=True)
        self.behaviour = nn.Linear(96, 5)

    def forward(self, x):
        return self.behaviour(self.rnn(x)[0].mean(1))


def animals(farm):
    """Recordings of a farm, one batch per animal."""
    herd = {0: 40, 1: 170, 2: 52}[farm]
    gen = torch.Generator().manual_seed(farm)
    for _ in range(herd):
        time.sleep(0.06)  # the collars' radio
        yield torch.randn(8, 60, 6, generator=gen), torch.randint(0, 5, (8,), generator=gen)


def train(model, opt, rank):
    started, seen = time.perf_counter(), 0
    with Join([model]):
        for recording, label in animals(rank):
            loss = nn.functional.cross_entropy(model(recording), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += 1
            if seen % 20 == 0:
                logger.info("farm %d: %d animals, loss %.3f, %.1f s", rank, seen, loss.item(), time.perf_counter() - started)
    return seen


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(CollarNet())
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    count = torch.tensor([float(train(model, opt, rank))])
    dist.all_reduce(count)
    if rank == 0:
        logger.info("%d animals in all", int(count))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
