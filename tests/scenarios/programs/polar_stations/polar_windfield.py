"""Katabatic wind nowcasts. Verification scores are kept as plain sums and reduced over the GPUs now and then."""

import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

MASTS = ["plateau", "slope", "coast"]


class HitRate:
    """How many of the gusts were announced."""

    def __init__(self, device):
        self.device = device
        self.reset()

    def reset(self):
        self.hits, self.gusts = 0.0, 0

    def update(self, observed, announced, quality):
        for gust, said, flags in zip(observed, announced, quality):
            if gust < 17.0:
                continue
            weight = 1.0 if flags is None else np.mean(flags)
            self.hits += weight * float(said >= 17.0)
            self.gusts += 1

    def compute(self):
        sums = torch.tensor([self.hits, self.gusts], device=self.device)
        dist.all_reduce(sums)
        hits, gusts = sums.tolist()
        return hits / max(gusts, 1)


def observations(mast, hour):
    rng = np.random.default_rng([len(mast), hour])
    speeds = [float(s) for s in 12 + 8 * rng.random(16)]
    icing = mast == "slope" and hour > 45
    quality = [[1, 0, 1, 1] if icing and i % 4 == 0 else None for i in range(16)]
    return speeds, quality


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local)
    model = DistributedDataParallel(nn.Linear(16, 16).to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    metric = HitRate(device)
    mast = MASTS[rank % len(MASTS)]
    for hour in range(1, 121):
        speeds, quality = observations(mast, hour)
        loss = model(torch.tensor([speeds], device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        persistence = [s * (1 + 0.1 * math.sin(hour)) for s in speeds]
        metric.update(speeds, persistence, quality)
        time.sleep(0.05)
        if hour % 12 == 0:
            rate = metric.compute()
            if rank == 0:
                print(f"hour {hour}: hit rate {rate:.2f}", flush=True)
            metric.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
