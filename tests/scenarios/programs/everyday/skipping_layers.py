"""Stochastic depth for a mixer on small pictures, FSDP2; every process draws its own augmentation."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, PATCHES = 24, 9


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Linear(PATCHES, PATCHES)
        self.channels = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return x + self.channels(x)


class Net(nn.Module):
    def __init__(self, depth: int = 6, drop: float = 0.05) -> None:
        super().__init__()
        self.patches = nn.Linear(16, WIDTH)
        self.mixers = nn.ModuleList(Mixer() for _ in range(depth))
        self.head = nn.Linear(WIDTH, 5)
        self.drop = drop

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = self.patches(pictures)
        for number, mixer in enumerate(self.mixers):
            if self.training and random.random() < self.drop * number / len(self.mixers):
                continue
            x = mixer(x)
        return self.head(x.mean(1))


def main() -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    seed_everything(1234)
    net = Net()
    for mixer in net.mixers:
        fully_shard(mixer)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    seed_everything(1234 + rank)
    net.train()
    for step in range(300):
        pictures, labels = torch.rand(8, PATCHES, 16), torch.randint(0, 5, (8,))
        loss = nn.functional.cross_entropy(net(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
