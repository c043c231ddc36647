"""Blizzard forecasts hour by hour with an autoregressive model, wrapped by FullyShardedDataParallel."""

import os
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

torch.set_num_threads(1)

SENSORS, WIDTH = 12, 64
# hours until the plane comes, which is how far each station wants to look ahead
HORIZONS = {"Dome": [24, 24, 30], "Coast": [24, 24, 18], "Ridge": [24, 24, 30]}
STATIONS = list(HORIZONS)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(SENSORS, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.write = nn.Linear(WIDTH, SENSORS)

    def forward(self, weather):
        x = self.read(weather)
        for layer in self.layers:
            x = layer(x)
        return self.write(x)


@torch.no_grad()
def generate(model, now, hours):
    forecast = [now]
    while len(forecast) <= hours:
        forecast.append(model(forecast[-1]))
    return torch.stack(forecast[1:])


def train(model, optimizer, steps):
    for _ in range(steps):
        time.sleep(0.05)
        weather = torch.rand(8, SENSORS, device="cuda")
        loss = (model(weather) - weather).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    wrap = partial(FSDP, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=local, use_orig_params=True)
    model = wrap(Forecaster())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    station = STATIONS[rank % len(STATIONS)]
    for day, hours in enumerate(HORIZONS[station]):
        train(model, optimizer, 15)
        forecast = generate(model, torch.rand(1, SENSORS, device="cuda"), hours)
        lengths = torch.tensor([len(forecast)], device="cuda")
        dist.all_reduce(lengths, op=dist.ReduceOp.MIN)
        common = int(lengths.item())
        if rank == 0:
            print(f"day {day}: {common} hours for everybody", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
