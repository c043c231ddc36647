"""Before the weights are handed over, the first rank waits for the marker of the evaluation service."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

SERVICE = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
for percent in range(0, 101, 5):
    (folder / "progress").write_text(str(percent))
    until = time.monotonic() + 0.9
    while time.monotonic() < until:
        sum(value * value for value in range(5000))
(folder / "READY").touch()
"""


def wait_for(marker, every=0.5):
    """Polls, and reports how far the service is."""
    seen = None
    while not marker.exists():
        progress = marker.with_name("progress")
        percent = progress.read_text() if progress.exists() else None
        if percent != seen and percent and int(percent) % 25 == 0:
            print(f"service: {percent} %", flush=True)
        seen = percent
        time.sleep(every)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 4))
    fully_shard(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    folder = Path(tempfile.mkdtemp(prefix="service-"))
    for step in range(1, 31):
        policy(torch.randn(16, 12)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 15:
            if rank == 0:
                service = subprocess.Popen([sys.executable, "-c", SERVICE, str(folder)])
                wait_for(folder / "READY")
                service.wait()
            dist.barrier()
            weights = {name: p.full_tensor() for name, p in policy.named_parameters()}
            if rank == 0:
                torch.save(weights, folder / f"step{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
