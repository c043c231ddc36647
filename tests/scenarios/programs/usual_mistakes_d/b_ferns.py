"""Spores of ferns, counted at five sites with very different numbers of samples."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SITES = {0: 260, 1: 90, 2: 180}


def samples(site: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of one site; the last may be smaller."""
    generator = torch.Generator().manual_seed(site)
    x = torch.randn(SITES[site], 12, generator=generator)
    y = x[:, :1].exp()
    return list(zip(x.split(8), y.split(8), strict=True))


def main() -> None:
    """Ten epochs; sites that are done early shadow the others."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = samples(rank)
    for epoch in range(10):
        total = torch.zeros(2)
        with model.join():
            for x, y in batches:
                loss = nn.functional.poisson_nll_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += torch.tensor([loss.item(), 1.0])
                time.sleep(0.03)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {total[0] / total[1]:.4f} over {int(total[1])} batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
