"""Finds meteor trails in frames of the night sky. The tracker is told how it goes every tenth frame."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Detector(nn.Module):
    """A trail is a line that is brighter than the sky around it."""

    def __init__(self):
        super().__init__()
        self.sky = nn.Linear(64, 64)
        self.trail = nn.Linear(64, 2)

    def forward(self, frames):
        return self.trail(torch.relu(frames - self.sky(frames)))


def watch_the_sky(model, device, frames_seen):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(frames_seen):
        frames = torch.randn(8, 64, device=device)
        loss = model(frames).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 10 == 9:
            print(f"frame {number}: {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=500)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    model = DistributedDataParallel(Detector().to(device), device_ids=[device.index])
    watch_the_sky(model, device, options.frames)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
