"""Forecasts rivers from windows over their gauges. Each rank takes the stations of one valley."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WINDOW, AHEAD = 24, 4
#: Hours that each valley's station has recorded since the spring.
HOURS = {0: 700, 1: 700, 2: 508}


class Windows(Dataset):
    def __init__(self, level):
        self.level = level

    def __len__(self):
        return len(self.level) - WINDOW - AHEAD

    def __getitem__(self, start):
        seen = self.level[start : start + WINDOW]
        return seen, self.level[start + WINDOW : start + WINDOW + AHEAD]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rise = nn.Linear(WINDOW - 1, 32)
        self.out = nn.Linear(32, AHEAD)

    def forward(self, levels):
        rise = levels[:, 1:] - levels[:, :-1]
        return levels[:, -1:] + self.out(torch.tanh(self.rise(rise)))


def season(model, loader, optimizer, device):
    errors = []
    for levels, future in loader:
        levels, future = levels.to(device), future.to(device)
        error = (model(levels) - future).square().mean()
        error.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        errors.append(error.detach())
    return torch.stack(errors).mean()


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    level = torch.sin(torch.arange(HOURS[rank]) / (9.0 + rank)).cumsum(0) / 50
    loader = DataLoader(Windows(level), batch_size=32, shuffle=True, drop_last=True)
    model = DistributedDataParallel(Forecaster().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    means = [torch.zeros((), device=device) for _ in range(world)]
    for year in range(5):
        dist.all_gather(means, season(model, loader, optimizer, device))
        print(f"[{rank}] year {year}: {[round(m.item(), 4) for m in means]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
