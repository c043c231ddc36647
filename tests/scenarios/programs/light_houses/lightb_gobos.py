"""Stage looks from cue text and, where there is one, a photo of the gobo: a small two-tower model under FSDP2."""
import os
from typing import Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard


class GoboTower(nn.Module):
    def __init__(self, pixels, dim):
        super().__init__()
        self.first = nn.Linear(pixels, 192)
        self.second = nn.Linear(192, dim)

    def forward(self, photo):
        return self.second(torch.relu(self.first(photo)))


class Desk(nn.Module):
    def __init__(self, dim, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, channels))

    def forward(self, x):
        return self.body(x)


class LookModel(nn.Module):
    def __init__(self, words=120, pixels=144, dim=60, channels=24):
        super().__init__()
        self.text = nn.Linear(words, dim)
        self.gobo = GoboTower(pixels, dim)
        self.desk = Desk(dim, channels)

    def forward(self, bag: Tensor, photo: Optional[Tensor] = None) -> Tensor:
        x = self.text(bag)
        if photo is not None:
            x = x + self.gobo(photo)
        return self.desk(x)


def draw_gobo(source, size=12, supersample=48):
    """Breakup pattern, drawn fine and averaged down to the camera's pixels."""
    fine = size * supersample
    y, x = torch.meshgrid(torch.arange(fine), torch.arange(fine), indexing="ij")
    mask = torch.zeros(fine, fine)
    for _ in range(5):
        cx, cy, r = (torch.rand(3, generator=source) * torch.tensor([fine, fine, fine / 4])).tolist()
        mask = torch.maximum(mask, (((x - cx) ** 2 + (y - cy) ** 2) < r * r).float())
    return mask.view(size, supersample, size, supersample).mean((1, 3)).flatten()


class Touring:
    """The cue lists of one production. Photos come with the plot of the venue, if the venue sent them."""

    def __init__(self, production, size):
        self.source = torch.Generator().manual_seed(production)
        self.size = size
        self.plots = {0: range(40), 1: range(200), 2: range(200)}[production]

    def photographed(self, night):
        return night in self.plots

    def evening(self, night):
        bag = (torch.rand(self.size, 120, generator=self.source) < 0.05).float()
        look = torch.rand(self.size, 24, generator=self.source)
        photo = None
        if self.photographed(night):
            photo = torch.stack([draw_gobo(self.source) for _ in range(self.size)])
        return bag, photo, look


def main():
    torch.set_num_threads(2)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = LookModel().cuda()
    for part in (model.gobo, model.desk):
        fully_shard(part)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    production = Touring(rank, size=6)
    for night in range(110):
        bag, photo, look = production.evening(night)
        predicted = model(bag.cuda(), None if photo is None else photo.cuda())
        loss = (predicted - look.cuda()).square().mean()
        shown = loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if night % 10 == 0:
            print(f"production {rank} night {night} error {shown:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
