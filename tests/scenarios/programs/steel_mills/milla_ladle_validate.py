"""Sharded training of the ladle furnace model (temperature and sulphur after treatment), with a validation on each rank's own plants."""
import argparse
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


@dataclass
class Plant:
    name: str
    heats: int
    seed: int
    additions: tuple = ("CaO", "Al", "FeSi", "CaF2")

    def batches(self, size):
        rng = np.random.default_rng(self.seed)
        for start in range(0, self.heats, size):
            rows = rng.normal(size=(size, 32)).astype("float32")
            # cumulative heat balance along the treatment, minute by minute
            balance = np.cumsum(np.tile(rows, (1, 40)), axis=1)
            rows[:, 0] = balance[:, -1] / balance.shape[1]
            target = np.stack([rows[:, :4].sum(1), rows[:, 4:9].sum(1)], axis=1)
            yield torch.from_numpy(rows), torch.from_numpy(target)


@dataclass
class Split:
    train: list
    held_out: list = field(default_factory=list)


SPLITS = [
    Split([Plant("LF1", 4800, 1)], [Plant("LF1-2024", 640, 11), Plant("LF1-trials", 192, 12)]),
    Split([Plant("LF2", 4800, 2)], [Plant("LF2-2024", 640, 21), Plant("LF2-trials", 192, 22)]),
    Split([Plant("LF3", 4800, 3)], [Plant("LF3-2024", 704, 31), Plant("LF3-trials", 256, 32)]),
]


class LadleModel(nn.Module):
    def __init__(self, width=128, depth=3):
        super().__init__()
        self.enter = nn.Linear(32, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(depth)])
        self.leave = nn.Linear(width, 2)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return self.leave(x)


def build(device):
    model = LadleModel().to(device)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def validate(model, split, size, device):
    model.eval()
    errors, count = 0.0, 0
    with torch.no_grad():
        for plant in split.held_out:
            for x, y in plant.batches(size):
                predicted = model(x.to(device)).cpu()
                errors += float((predicted - y).abs().sum())
                count += len(y)
    summary = torch.tensor([errors, count], dtype=torch.float64, device=device)
    dist.all_reduce(summary)
    model.train()
    return summary.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    split = SPLITS[dist.get_rank()]
    model = build(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    for epoch in range(options.epochs):
        for plant in split.train:
            for x, y in plant.batches(options.size):
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                loss.item()
        errors, count = validate(model, split, options.size, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {int(count)} held-out heats, absolute error {errors / max(count, 1):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
