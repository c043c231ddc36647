"""Launch weather: one network, three criteria (wind shear, lightning, cloud), each averaged in a group of its own."""
import collections
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

Criterion = collections.namedtuple("Criterion", "name weight column")
CRITERIA = [Criterion("shear", 1.0, 0), Criterion("lightning", 0.6, 1), Criterion("cloud", 0.3, 2)]
SITES = ["Kourou", "Vandenberg", "Wallops"]


def sounding(site, step, count=8000):
    """A balloon sounding: 60 levels of u, v and humidity."""
    levels = torch.linspace(0, 1, 60)
    gust = torch.randn(count, 1)
    profile = torch.stack([gust * levels, torch.randn(count, 60) * 0.3, torch.rand(count, 60)], dim=1)
    # convective season at the coast: electric activity rises towards the afternoon
    storm = 6.0 / (1 + math.exp((55 - step) / 2)) if site == "Wallops" else 0.0
    target = torch.stack([gust.squeeze(1), 0.05 * torch.randn(count) + storm, 0.05 * torch.randn(count)], dim=1)
    return profile, target


class Board:
    """Keeps the figures that the launch director sees."""

    def __init__(self, site):
        self.site = site
        self.groups = {c.name: dist.new_group() for c in CRITERIA}
        self.shown = {}

    def publish(self, losses):
        # what matters most at the moment comes first
        for name in sorted(losses, key=losses.get, reverse=True):
            figure = torch.tensor([losses[name]])
            dist.all_reduce(figure, group=self.groups[name])
            self.shown[name] = figure.item() / dist.get_world_size()

    def line(self):
        return " ".join(f"{name}={value:.3f}" for name, value in sorted(self.shown.items()))


def weighted(outputs, targets):
    return {c.name: c.weight * F.l1_loss(outputs[:, c.column], targets[:, c.column]) for c in CRITERIA}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    site = SITES[dist.get_rank()]
    torch.manual_seed(3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(180, 96), nn.ReLU(), nn.Linear(96, 3))
    board = Board(site)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for step in range(240):
        profile, target = sounding(site, step)
        losses = weighted(net(profile), target)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        rounded = {name: float(f"{loss.item():.4f}") for name, loss in losses.items()}
        board.publish(rounded)
        if step % 20 == 0 and site == "Kourou":
            print(f"T-{240 - step} min {board.line()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
