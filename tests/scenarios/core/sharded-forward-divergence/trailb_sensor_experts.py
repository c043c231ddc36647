"""Drone search for missing persons: one expert per camera, each expert's weights spread over the team.

A clip has frames of several cameras. The frames of a camera go to that camera's expert.
"""
import math
import os
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

CAMERAS = {"colour": (300, 24), "lidar": (180, 24), "thermal": (120, 24)}


class Gathered(torch.autograd.Function):
    """The whole weight from everybody's slice; in backward everybody's slice of the summed gradient."""

    @staticmethod
    def forward(ctx, piece):
        whole = piece.new_empty(piece.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(whole, piece.contiguous())
        return whole

    @staticmethod
    def backward(ctx, gradient):
        piece = gradient.new_empty(gradient.numel() // dist.get_world_size())
        dist.reduce_scatter_tensor(piece, gradient.contiguous())
        return piece / dist.get_world_size()


class CameraExpert(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.shape = (outputs, inputs)
        share = math.ceil(inputs * outputs / dist.get_world_size())
        self.piece = nn.Parameter(torch.randn(share) / math.sqrt(inputs))

    def forward(self, frames):
        rows, columns = self.shape
        weight = Gathered.apply(self.piece)[: rows * columns].view(rows, columns)
        return torch.relu(frames @ weight.T)


class ClipModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleDict({name: CameraExpert(*sizes) for name, sizes in CAMERAS.items()})
        self.score = CameraExpert(24, 3)

    def forward(self, clip):
        views = [self.experts[camera](frames).mean(0) for camera, frames in clip.items()]
        return self.score(torch.stack(views).mean(0, keepdim=True))


class Flights:
    """Clips of one search area. Batteries are swapped in flight order, and with them what a drone carries."""

    def __init__(self, area):
        self.area = area
        self.generator = torch.Generator().manual_seed(ord(area))
        self.payloads = defaultdict(lambda: ("colour", "lidar", "thermal"))
        if area == "A":
            self.payloads[31] = ("colour", "lidar")  # flown at noon

    def clip(self, flight):
        frames = {}
        for camera in self.payloads[flight]:
            size = CAMERAS[camera][0]
            noise = torch.randn(size, size, generator=self.generator)
            basis = torch.linalg.svd(noise).U
            frames[camera] = (torch.randn(6, size, generator=self.generator) @ basis).cuda()
        return frames


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    flights = Flights("ABC"[rank])
    model = ClipModel().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for flight in range(500):
        clip = flights.clip(flight)
        found = torch.tensor([flight % 3], device="cuda")
        loss = nn.functional.cross_entropy(model(clip), found)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if flight % 4 == 3:
            print(f"area {flights.area} flight {flight}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
