"""Daily pluckings per field: the big division has more days on record, DDP's join takes care of that."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DIVISIONS = {"lower": 44, "upper": 75, "out": 40}  # days on record


class PluckingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = nn.Embedding(30, 12)
        self.out = nn.Linear(12 + 3, 1)

    def forward(self, field, weather):
        return self.out(torch.cat([self.field(field), weather], 1)).squeeze(1)


def days(name, seed):
    """The ledgers up to day 40 are clean; later ones are read by hand-made rules, line by line."""
    rng = torch.Generator().manual_seed(seed)
    for day in range(DIVISIONS[name]):
        field = torch.randint(0, 30, (25,), generator=rng)
        weather = torch.rand(25, 3, generator=rng)
        kilos = 10 + field.float() / 10 + 4 * weather[:, 0]
        time.sleep(0.06 if day < 40 else 0.45)
        yield field, weather, kilos / 20


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name = list(DIVISIONS)[rank]
    torch.manual_seed(1)
    model = DDP(PluckingModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = torch.zeros(1)
    with model.join():
        for field, weather, kilos in days(name, rank):
            loss = nn.functional.mse_loss(model(field, weather), kilos)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += 1
    print(f"{name}: {int(seen)} days", flush=True)
    dist.all_reduce(seen)
    for _ in range(40):
        field, weather = torch.randint(0, 30, (25,)), torch.rand(25, 3)
        loss = model(field, weather).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(0.05)
    if rank == 0:
        print(f"{int(seen)} days in all, mean square {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
