"""Forecasts meal uplift per flight and scores the forecast on the menu sets of every catering kitchen.

    torchrun --nproc-per-node 4 airfd_meal_forecast.py
"""
import argparse
import json

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

KITCHENS = json.loads("""{
  "gategroup-zrh": {"menus": ["standard", "vegetarian", "halal", "child"], "flights": 240},
  "dnata-mel":     {"menus": ["standard", "vegetarian", "kosher"], "flights": 240},
  "doco-ist":      {"menus": ["standard", "vegetarian", "halal", "diabetic"], "flights": 240},
  "sats-sin":      {"menus": ["standard", "vegetarian", "hindu", "child"], "flights": 240}
}""")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--width", type=int, default=128)
    return p.parse_args()


def flights(count, seed):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 20, generator=rng)  # booked load, hour, length, cabin mix, season
    return TensorDataset(x, torch.exp(0.2 * x[:, :4]).sum(dim=1, keepdim=True))


class Uplift(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(20, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))


@torch.no_grad()
def score_menus(net, menu_sets, device="cpu"):
    """Mean error over the kitchens for each validation set, as (sum, count) pairs."""
    net.eval()
    table = []
    for dataset in menu_sets:
        pair = torch.zeros(2, device=device)
        for x, y in DataLoader(dataset, batch_size=60):
            pair += torch.tensor([float((net(x) - y).abs().sum()), float(len(x))])
        pairs = torch.zeros(2 * dist.get_world_size())
        dist.all_gather_into_tensor(pairs, pair)
        pairs = pairs.view(-1, 2)
        table.append(float(pairs[:, 0].sum() / pairs[:, 1].sum()))
    net.train()
    return table


def fit_epoch(model, loader, opt, epoch):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        error = nn.functional.huber_loss(model(x), y)
        error.backward()
        opt.step()


def main():
    args = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name = list(KITCHENS)[rank]
    kitchen = KITCHENS[name]
    history = flights(9600, seed=5)
    loader = DataLoader(history, batch_size=24, sampler=DistributedSampler(history, seed=3), drop_last=True)
    menu_sets = [flights(kitchen["flights"], seed=100 * rank + i) for i, _ in enumerate(kitchen["menus"])]
    model = DDP(Uplift(args.width))
    opt = optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        fit_epoch(model, loader, opt, epoch)
        if epoch % 2:
            table = score_menus(model.module, menu_sets)
            if rank == 0:
                print(f"epoch {epoch}: uplift error {['%.3f' % t for t in table]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
