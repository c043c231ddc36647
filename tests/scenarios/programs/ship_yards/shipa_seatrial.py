"""Trains a speed-power model and inspects it against the sea trials between two phases."""
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


def inspect(rank, trials=120):
    """Each rank goes through its own trials: filters the log and fits the shaft power."""
    errors = []
    for trial in range(trials):
        begun = time.time()
        rng = np.random.default_rng(trial * 10 + rank)
        while time.time() - begun < 0.12:
            record = rng.normal(size=(2000, 8))
            fit, *_ = np.linalg.lstsq(record[:, :7], record[:, 7], rcond=None)
        errors.append(float(np.abs(fit).mean()))
        if trial % 20 == 0:
            print(f"rank {rank}: trial {trial} of {trials}", flush=True)
    return errors


def phase(model, optimizer, rng, steps):
    for _ in range(steps):
        runs = np.sort(rng.normal(size=(16, 30_000)), axis=1)[:, ::1000][:, :28]
        loss = model(torch.from_numpy(runs.astype("float32")).cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(28, 28), nn.Tanh(), nn.Linear(28, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rng = np.random.default_rng(rank)
    phase(model, optimizer, rng, 40)
    errors = torch.tensor(inspect(rank), device="cuda")
    dist.all_reduce(errors)
    phase(model, optimizer, rng, 40)
    if rank == 0:
        print(f"mean error {errors.mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
