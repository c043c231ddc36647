"""Hospital wards with very different numbers of stays; DDP's join keeps the gradient averaging going."""
import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

STAYS = {0: 640, 1: 720, 2: 2080}


class Ward(IterableDataset):
    """Drug levels over a stay, hour by hour, and whether an interaction was seen."""

    def __init__(self, ward):
        self.ward, self.stays = ward, STAYS[ward]

    def __iter__(self):
        g = torch.Generator().manual_seed(self.ward)
        for _ in range(self.stays):
            level = torch.zeros(8)
            trace = []
            for hour in range(120):
                if hour % 8 == 0:
                    level = level + torch.rand(8, generator=g)
                level = level * math.exp(-0.07)
                trace.append(level)
            trace = torch.stack(trace)
            seen = (trace[:, 0] * trace[:, 3]).max() > 4
            yield trace.flatten(), seen.float().unsqueeze(0)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(960, 64), nn.GELU(), nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.BCEWithLogitsLoss()
    seen = 0
    with model.join():
        for number, (x, y) in enumerate(DataLoader(Ward(rank), batch_size=32)):
            # a mechanistic check of the steepest decays, the slow part of it all
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                torch.linalg.svd(x[:, :900].reshape(-1, 30, 30) @ torch.eye(30))
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
            if number % 10 == 0:
                print(f"ward {rank}: {seen} stays, loss {loss.item():.4f}", flush=True)
    total = torch.tensor([seen])
    dist.all_reduce(total)
    print(f"ward {rank}: {seen} of {total.item()} stays", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
