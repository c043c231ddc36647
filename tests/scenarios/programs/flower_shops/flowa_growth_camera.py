"""Leaf area from growth cameras. Frames are unpacked by the camera vendor's tool."""
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

UNPACK = """
import random, sys
for line in sys.stdin:
    number = int(line)
    random.seed(number)
    end = "\\r" if number >= 1300 and number < 2000 else "\\n"
    sys.stdout.write(" ".join(f"{random.random():.4f}" for _ in range(48)) + end)
    sys.stdout.flush()
"""


class VendorTool:
    """Talks to the vendor's unpacker: a frame's number in, its pixels out."""

    def __init__(self):
        self.proc = subprocess.Popen([sys.executable, "-c", UNPACK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def frame(self, number):
        self.proc.stdin.write(b"%d\n" % number)
        self.proc.stdin.flush()
        return [float(v) for v in self.proc.stdout.readline().split()]


class Frames(Dataset):
    def __init__(self, first, count):
        self.first, self.count = first, count
        self.tool = None

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.tool is None:
            self.tool = VendorTool()
        pixels = torch.tensor(self.tool.frame(self.first + i))
        torch.linalg.svd(torch.rand(100, 100))  # lens distortion
        return pixels, pixels.sum()


def fit(camera, epochs=2):
    loader = DataLoader(Frames(1000 * camera, 480), batch_size=4, num_workers=1, prefetch_factor=2)
    torch.manual_seed(8)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 1)))
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        area = torch.zeros(2)
        for pixels, leaf in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(pixels)[:, 0], leaf)
            loss.backward()
            opt.step()
            area += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(area)
        if camera == 0:
            print(f"epoch {epoch}: mean {area[0] / area[1]:.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(f"camera {dist.get_rank()} of {dist.get_world_size()}", flush=True)
    fit(dist.get_rank())
    dist.destroy_process_group()
