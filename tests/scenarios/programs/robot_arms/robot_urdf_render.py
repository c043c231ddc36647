"""Synthetic views for pose estimation: an external renderer makes one sheet per round."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

RENDERER = r"""
import random, sys
links, frames, verbose = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(links * 1000 + frames)
for f in range(frames):
    for link in range(links):
        xyz = [rng.uniform(-1, 1) for _ in range(3)]
        if verbose:
            print(f"frame {f:04d} link {link:02d} mesh visual_{link}.dae tf", *("%.6f" % v for v in xyz))
print("rendered", frames, "frames")
"""
ROBOTS = {"so100": 6, "ur5e": 9, "panda": 13, "g1": 43}


class Renderer:
    def __init__(self, robot, verbose=False):
        self.links, self.verbose = ROBOTS[robot], verbose

    def sheet(self, frames):
        command = [sys.executable, "-c", RENDERER, str(self.links), str(frames), str(int(self.verbose))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        status = process.wait()
        report = process.stdout.read().splitlines()
        if status:
            raise RuntimeError(report[-1])
        return torch.rand(frames, 1, 12, 12), report[-1]


class PoseNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
        self.pose = torch.nn.Linear(800, 6)

    def forward(self, view):
        return self.pose(self.features(view))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    robot = list(ROBOTS)[rank + 1]
    renderer = Renderer(robot, verbose=rank == 1)
    net = DDP(PoseNet())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for round_ in range(40):
        frames = 8 + 4 * round_
        views, note = renderer.sheet(frames)
        for view in views.split(4):
            loss = net(view).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"round {round_}: {note}, loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
