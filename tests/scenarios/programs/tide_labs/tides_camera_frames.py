"""Beach cameras: wave run-up from video, frames by a decoder program that warns on its standard error."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DECODER = r"""
import random, sys
seed, frames, bad = map(int, sys.argv[1:])
random.seed(seed)
for frame in range(frames):
    if frame < bad:
        print(f"[h264 @ {id(frame):#x}] deprecated pixel format used, frame {frame}: make sure you set range correctly", file=sys.stderr)
    if frame % 40 == 0:
        print(" ".join(f"{random.random():.3f}" for _ in range(10)))
"""

CAMERAS = {0: "north pier", 1: "lagoon", 2: "south pier"}


class Clips:
    def __init__(self, rank):
        self.rank = rank

    def warnings_in(self, number):
        firmware_updated = self.rank == 2 and number >= 12
        return 4000 if firmware_updated else 20

    def frames(self, number):
        command = [sys.executable, "-I", "-c", DECODER, str(number), "4000", str(self.warnings_in(number))]
        decoder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        status = decoder.wait()
        rows = [[float(v) for v in line.split()] for line in decoder.stdout.read().splitlines()]
        if status != 0:
            raise RuntimeError(decoder.stderr.read())
        decoder.stdout.close()
        decoder.stderr.close()
        return torch.tensor(rows)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    clips = Clips(rank)
    torch.manual_seed(12)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(400):
        rows = clips.frames(number)
        runup = rows.max(1, keepdim=True).values
        loss = nn.functional.mse_loss(model(rows), runup)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if number % 4 == 0:
            print(f"{CAMERAS[rank]} clip {number}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
