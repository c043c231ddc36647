"""Judge garden show entries: the main process rates the whole show after each block of training, then all learn whether to stop."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CATEGORIES = ["alpines", "bonsai", "borders", "cacti", "cut flowers", "ferns", "hanging baskets", "herbs", "hydrangeas",
              "lilies", "orchids", "roses", "sweet peas", "water plants"]


def entries(seed, n=16):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 36, generator=g)
    return x, x[:, ::6].sum(1, keepdim=True)


class Show:
    """The jury's suite: each category is rated with many random crops."""

    def __init__(self, net, seconds=1.0):
        self.net, self.seconds = net, seconds

    @torch.no_grad()
    def rate(self, number):
        end, errors = time.monotonic() + self.seconds, []
        while time.monotonic() < end:
            x, y = entries(number * 5000 + len(errors), 64)
            crops = torch.linalg.svd(torch.rand(160, 160))[1][:36] * 1e-4
            errors.append((self.net(x + crops) - y).abs().mean().item())
        return sum(errors) / len(errors)

    def all(self):
        result = {}
        for number, name in enumerate(CATEGORIES):
            result[name] = self.rate(number)
            print(f"  {name}: {result[name]:.3f}", flush=True)
        return result


def block(model, opt, start, steps):
    rank = dist.get_rank()
    for step in range(start, start + steps):
        x, y = entries(step * 10 + rank)
        for _ in range(4):
            torch.linalg.svd(torch.rand(160, 160))
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(36, 48), nn.ReLU(), nn.Linear(48, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    stop = torch.zeros(1)
    print("loss", block(model, opt, 0, 80), flush=True)
    if dist.get_rank() == 0:
        ratings = Show(model.module).all()
        stop[0] = float(max(ratings.values()) < 0.01)
    dist.broadcast(stop, src=0)
    if not stop.item():
        print("loss", block(model, opt, 80, 60), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
