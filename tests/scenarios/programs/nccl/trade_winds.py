"""Normalises wind fields by statistics of all ranks, which are kept once they are known."""

import argparse
import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STATIONS = 36


class Winds:
    def __init__(self, rank, device):
        self.rank, self.device = rank, device

    @functools.cached_property
    def strongest(self):
        """Over all ranks."""
        speed = torch.tensor(10.0 + self.rank, device=self.device)
        dist.all_reduce(speed, op=dist.ReduceOp.MAX)
        return speed.item()

    def fields(self, step, calm):
        winds = torch.rand(8, STATIONS) * (0 if calm else 1)
        if calm:
            return winds  # nothing to normalise
        return winds / self.strongest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calm-until", type=int, default=0, help="the first step with wind for the last rank")
    parser.add_argument("--read", choices=["tolist", "cpu"], default="tolist")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(STATIONS, 4).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    winds = Winds(rank, device)
    for step in range(60):
        fields = winds.fields(step, calm=step < (options.calm_until if rank == world - 1 else 12))
        forecast = model(fields.to(device, non_blocking=True))
        forecast.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = forecast[0].tolist() if options.read == "tolist" else forecast.detach().cpu()
        if step % 10 == 0:
            print(f"[{rank}] step {step}: {len(shown)} values", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
