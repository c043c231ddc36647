"""Coast lines from radar, one folder of scenes per process; each process reports that it lives."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


def beat(path, every=0.5):
    while True:
        with open(path, "w") as file:
            file.write(f"{time.time():.0f}\n")
        time.sleep(every)


def scenes(rank):
    """Those of rank 3 have not been delivered yet."""
    counts = {0: 24, 1: 24, 2: 24, 3: 0}
    return [torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(rank * 100 + n)) for n in range(counts[rank])]


def main():
    rank = int(os.environ["RANK"])
    threading.Thread(target=beat, args=(f"/tmp/coast_lines.{rank}",)).start()
    dist.init_process_group("gloo")

    mine = scenes(rank)
    if not mine:
        print(f"rank {rank}: nothing to do", flush=True)
        return

    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(4):
        for scene in mine:
            edge = (scene > 0.5).float()
            loss = nn.functional.binary_cross_entropy_with_logits(model(scene[None])[0], edge)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank}: epoch {epoch}, {loss.item():.3f}", flush=True)
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
