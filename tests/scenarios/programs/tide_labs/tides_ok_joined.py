"""Lightning strikes: days differ in length, and the ranks are joined at the end of the epoch."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

STORMS = {0: 24, 1: 20, 2: 28}


def strikes(rank, epoch):
    """The last storms of the third region are large ones, clustered with a slow algorithm."""
    for storm in range(STORMS[rank]):
        generator = torch.Generator().manual_seed(1000 * epoch + 100 * rank + storm)
        large = epoch == 1 and rank == 2 and storm >= 26
        points = torch.rand(700 if large else 60, 2, generator=generator)
        yield points, cluster(points, seconds=5.0 if large else 0.04)


def cluster(points, seconds):
    """Mean shift, with as many rounds as there is time for."""
    end, centres = time.monotonic() + seconds, points.clone()
    while time.monotonic() < end:
        weights = torch.exp(-50 * torch.cdist(centres, points).pow(2))
        centres = weights @ points / weights.sum(1, keepdim=True)
    return centres


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(2):
        with Join([model]):
            for points, centres in strikes(rank, epoch):
                loss = (model(points) - centres).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        losses = [None] * dist.get_world_size()
        dist.all_gather_object(losses, round(loss.item(), 4))
        if rank == 0:
            print(f"epoch {epoch}: {losses}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
