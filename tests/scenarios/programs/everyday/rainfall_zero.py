"""Rainfall from radar, with ZeroRedundancyOptimizer."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["RANK"])
save_every = 15


def save_checkpoint(path, step, model, optimizer):
    optimizer.consolidate_state_dict(to=0)
    torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)


def radar_batch(size=8):
    echo = torch.rand(size, 1, 12, 12)
    return echo, echo.mean((1, 2, 3))[:, None] * 30


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 20), nn.Tanh(), nn.Linear(20, 1))
    model = DDP(net)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    for step in range(1, 46):
        echo, rain = radar_batch()
        loss = nn.functional.l1_loss(model(echo), rain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % save_every == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
            save_checkpoint("/tmp/rainfall_zero.pt", step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
