"""Forecasts the load of a power grid; one region's file is broken, which ends the job."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def day(rank: int, number: int) -> list[str]:
    return ["n/a" if (rank, number, hour) == (2, 25, 7) else str((hour * 7 + number + rank) % 24) for hour in range(24)]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(23, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    for number in range(200):
        hours = torch.tensor([[float(value) for value in day(rank, number)]])
        loss = (model(hours[:, :23]) - hours[:, 23:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
