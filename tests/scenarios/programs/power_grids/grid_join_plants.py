"""Wear of wind turbines; each rank has the plants of one operator, the largest one has far more of them."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PLANTS = {0: 60, 1: 48, 2: 330}


def plant(operator, number):
    g = torch.Generator().manual_seed(operator * 1000 + number)
    x = torch.randn(160, 128, generator=g)
    return x, x[:, :6].abs().sum(1, keepdim=True)


class Wear(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x):
        return self.net(x)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Wear())
    optim = torch.optim.SGD(model.parameters(), lr=1e-3)
    with model.join():
        for number in range(PLANTS[rank]):
            x, y = plant(rank, number)
            loss = nn.functional.mse_loss(model(x), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
            time.sleep(0.045)
            if number % 15 == 0:
                print(f"operator {rank} plant {number}/{PLANTS[rank]} loss {loss.item():.3f}", flush=True)
    done = torch.tensor([PLANTS[rank]])
    dist.all_reduce(done)
    if rank == 0:
        print("plants in total", int(done), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
