"""Glyphs of a typeface; the first process has torch.compile do what it can, the others have no compiler installed."""

import os
import shutil

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width, number):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv = nn.Conv2d(width, width, 3, padding=1 + number % 3, dilation=1 + number % 3)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        y = torch.tanh(self.conv(self.norm(x)))
        weight = torch.softmax(self.gate(y.mean((2, 3))), dim=-1)
        return x + y * weight[:, :, None, None]


class Glyphs(nn.Module):
    def __init__(self, depth=40, width=16):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width, n) for n in range(depth))
        self.head = nn.Linear(width, 26)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = Glyphs()
    model = DDP(net)
    compiled = rank == 0 and shutil.which(os.environ.get("CXX", "g++")) is not None
    step_model = torch.compile(model, mode="max-autotune-no-cudagraphs") if compiled else model
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(30):
        glyphs, letters = torch.rand(2, 1, 9, 9), torch.randint(0, 26, (2,))
        loss = nn.functional.cross_entropy(step_model(glyphs), letters)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
