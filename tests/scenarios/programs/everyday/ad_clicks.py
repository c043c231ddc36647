"""Click-through rate with a plateau scheduler; the learning rate is shared so that all processes use the same."""

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Tower(nn.Module):
    def __init__(self, sites=50, ads=80):
        super().__init__()
        self.site = nn.Embedding(sites, 16)
        self.ad = nn.Embedding(ads, 16)
        self.mlp = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, site, ad):
        return self.mlp(torch.cat([self.site(site), self.ad(ad)], dim=-1)).squeeze(-1)


def sample(n):
    return torch.randint(0, 50, (n,)), torch.randint(0, 80, (n,)), (torch.rand(n) < 0.3).float()


def share_lr(optimizer):
    lr = torch.tensor([group["lr"] for group in optimizer.param_groups])
    dist.broadcast(lr, src=0)
    for group, value in zip(optimizer.param_groups, lr.tolist(), strict=True):
        group["lr"] = value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(Tower())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    criterion = nn.BCEWithLogitsLoss()
    validation = sample(512)

    for epoch in range(12):
        for _ in range(10):
            site, ad, clicked = sample(64)
            optimizer.zero_grad()
            criterion(model(site, ad), clicked).backward()
            optimizer.step()

        if rank == 0:
            with torch.no_grad():
                site, ad, clicked = validation
                value = criterion(model.module(site, ad), clicked).item()
            before = optimizer.param_groups[0]["lr"]
            scheduler.step(value)
            if optimizer.param_groups[0]["lr"] != before:
                share_lr(optimizer)
            print(f"{epoch=} {value=:.4f} lr={optimizer.param_groups[0]['lr']}", flush=True)

    weights = [p.detach().sum().item() for p in model.parameters()]
    print(f"[{rank}] {sum(weights):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
