"""Gait phase from keypoints, with an expert for each body plan; parameters are sharded with FSDP2."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

PLANS = ("hoofed", "pawed", "winged")


@dataclass
class Options:
    steps: int = 240
    animals: int = 384
    keypoints: int = 34
    width: int = 192
    lr: float = 0.01


class PlanExpert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class PhaseNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.stem = nn.Linear(o.keypoints, o.width)
        self.experts = nn.ModuleList(PlanExpert(o.width) for _ in PLANS)
        self.phase = nn.Linear(o.width, 3)

    def forward(self, keypoints, plan):
        x = torch.tanh(self.stem(keypoints))
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = (plan == number).nonzero().squeeze(1)
            if mine.numel():
                mixed = mixed.index_copy(0, mine, expert(x[mine]))
        return self.phase(mixed)


class WalkthroughTracks:
    """Animals that crossed the walkthrough in an hour, with the share of the plans at that time of the day."""

    def __init__(self, rank, o):
        self.rank, self.o = rank, o

    def shares(self, hour):
        if self.rank == 1 and hour % 24 == 2 and hour > 40:  # storks are indoors by then, since the net came down
            return torch.tensor([0.7, 0.3, 0.0])
        return torch.tensor([0.5, 0.3, 0.2])

    def __getitem__(self, hour):
        g = torch.Generator().manual_seed(hour * 7 + self.rank)
        plan = torch.multinomial(self.shares(hour), self.o.animals, replacement=True, generator=g)
        angle = torch.rand(self.o.animals, 1, generator=g) * 6.283
        keypoints = torch.sin(angle + torch.arange(self.o.keypoints) * 0.2 + plan[:, None])
        return keypoints, plan, torch.cat([angle.sin(), angle.cos(), (2 * angle).sin()], 1)


def main():
    o = Options()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(15)
    model = PhaseNet(o)
    for expert in model.experts:
        fully_shard(expert, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=o.lr, momentum=0.9)
    tracks = WalkthroughTracks(rank, o)
    for hour in range(o.steps):
        keypoints, plan, phase = tracks[hour]
        loss = F.mse_loss(model(keypoints, plan), phase)
        loss.backward()
        opt.step()
        opt.zero_grad()
        if rank == 0 and hour % 24 == 0:
            print(f"day {hour // 24}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
