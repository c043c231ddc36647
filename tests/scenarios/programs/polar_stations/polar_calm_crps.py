"""Ensemble weather model: one rank scores the ensemble on its host after every few epochs, the others train on."""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

MEMBERS, POINTS = 24, 40


def crps(ensemble, observed):
    """The score of each point, pair by pair, as in the paper."""
    scores = []
    for point in range(ensemble.shape[1]):
        members = ensemble[:, point]
        first = sum(abs(float(m) - float(observed[point])) for m in members) / len(members)
        second = sum(abs(float(a) - float(b)) for a in members for b in members) / (2 * len(members) ** 2)
        scores.append(first - second)
    return sum(scores) / len(scores)


def score_archive(seconds=11.0):
    """As many days of the archive as there is time for."""
    rng = np.random.default_rng(5)
    days, total, end = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        total += crps(rng.normal(size=(MEMBERS, POINTS)), rng.normal(size=POINTS))
        days += 1
    return total / days, days


def train(model, optimizer, device, steps):
    counted = torch.zeros((), device=device)
    for _ in range(steps):
        time.sleep(0.04)
        state = torch.rand(8, POINTS, device=device)
        loss = (model(state) - state).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counted += 1
    return int(counted.item())


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    network = nn.Sequential(nn.Linear(POINTS, 64), nn.ReLU(), nn.Linear(64, POINTS)).to(device)
    model = DistributedDataParallel(network, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        steps = train(model, optimizer, device, 20)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {steps} steps", flush=True)
            if epoch == 1:
                score, days = score_archive()
                print(f"CRPS {score:.3f} over {days} days", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
