"""Bird song: recordings of one recorder type have to be resampled by an old tool before they can be used."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

TOOL = r"""
import math, sys, time
seconds, seed = float(sys.argv[1]), int(sys.argv[2])
end = time.monotonic() + seconds
samples = [math.sin(seed + 0.01 * i) for i in range(2000)]
passes = 0
while True:
    samples = [0.25 * a + 0.5 * b + 0.25 * c for a, b, c in zip(samples[-1:] + samples, samples, samples[1:] + samples[:1])]
    passes += 1
    if time.monotonic() >= end:
        break
print(" ".join(f"{v:.4f}" for v in samples[:256]))
"""


def recording(rank, number):
    if number % 3 == 0:
        seconds = 11 if (rank, number) == (2, 6) else 0.3
        done = subprocess.run(
            [sys.executable, "-I", "-c", TOOL, str(seconds), str(number)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True,
        )
        return torch.tensor([float(v) for v in done.stdout.split()])
    return torch.randn(256, generator=torch.Generator().manual_seed(10 * rank + number))


def average(module, world):
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    coder = nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 32))
    optimizer = torch.optim.Adam(coder.parameters(), lr=1e-3)
    for number in range(10):
        windows = recording(rank, number).reshape(-1, 32)
        for _ in range(5):
            loss = (coder(windows) - windows).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            average(coder, world)
            optimizer.step()
            time.sleep(0.04)
        if rank == 0:
            print(f"recording {number}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
