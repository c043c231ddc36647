"""Regions of different size: the small ones are done early, and DDP's join lets the large one finish."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

CUSTOMERS = (900, 1000, 3800)


def region(number: int) -> DataLoader:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(CUSTOMERS[number], 9, generator=generator)
    return DataLoader(TensorDataset(x, x.clamp_min(0).sum(1)), batch_size=10, shuffle=True, generator=generator)


def run_epoch(model: DDP, loader: DataLoader, optimizer: torch.optim.Optimizer) -> tuple[int, float]:
    steps, total = 0, 0.0
    with Join([model]):
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps, total = steps + 1, total + loss.item()
            time.sleep(0.03)
    return steps, total / steps


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(9, 18), nn.ReLU(), nn.Linear(18, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = region(rank)
    for epoch in range(1, 2):
        mine = run_epoch(model, loader, optimizer)
        everywhere: list = [None] * world
        dist.all_gather_object(everywhere, mine)
        if rank == 0:
            for number, (steps, mean) in enumerate(everywhere):
                print(f"epoch {epoch}, region {number}: {steps} steps, {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
