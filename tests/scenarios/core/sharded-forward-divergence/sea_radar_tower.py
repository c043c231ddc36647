"""Collision risk from AIS reports and, where a shore radar covers the fairway, its echoes (FSDP2)."""
import os
import random
import time
from typing import NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.backends.cudnn.enabled = False


class Fairway(NamedTuple):
    name: str
    radar_hours: tuple


FAIRWAYS = [Fairway("Elbe", (0, 600)), Fairway("Weser", (0, 600)), Fairway("Jade", (0, 48))]


class Scene(NamedTuple):
    ais: torch.Tensor
    echoes: Optional[torch.Tensor]
    risk: torch.Tensor


class EchoTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(96, 80)
        self.second = nn.Linear(80, width)

    def forward(self, echoes):
        return self.second(torch.relu(self.first(echoes)))


class RiskModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.ais = nn.Sequential(nn.Linear(14, width), nn.ReLU(), nn.Linear(width, width))
        self.echo_tower = EchoTower(width)
        self.head = nn.Linear(width, 1)

    def forward(self, ais, echoes=None):
        h = self.ais(ais)
        if echoes is not None:
            h = h + self.echo_tower(echoes)
        return self.head(torch.relu(h))


def scenes(fairway, hours, size=6):
    rng = random.Random(fairway.name)
    first, last = fairway.radar_hours
    for hour in range(hours):
        ais, echoes = [], []
        for _ in range(size):
            time.sleep(0.008)
            ais.append([rng.random() for _ in range(14)])
            echoes.append([rng.random() for _ in range(96)])
        risk = torch.tensor([[max(a)] for a in ais])
        yield Scene(torch.tensor(ais), torch.tensor(echoes) if first <= hour < last else None, risk)


def shard(model):
    fully_shard(model.ais)
    fully_shard(model.echo_tower)
    fully_shard(model)
    return model


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    fairway = FAIRWAYS[dist.get_rank()]
    model = shard(RiskModel().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for hour, scene in enumerate(scenes(fairway, 600)):
        echoes = None if scene.echoes is None else scene.echoes.cuda()
        loss = nn.functional.mse_loss(model(scene.ais.cuda(), echoes), scene.risk.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if hour % 12 == 0:
            print(f"{fairway.name} hour {hour}: {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
