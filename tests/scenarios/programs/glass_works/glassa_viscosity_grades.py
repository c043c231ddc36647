"""Policy that proposes compositions; each one is graded by a small viscosity solver in a pool of processes."""

import multiprocessing
import os
import random
import resource
import signal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ReduceOp

FORMERS = ("SiO2", "B2O3", "Na2O", "K2O", "CaO", "MgO", "Al2O3")
BUDGET_KB = 120_000


class Budget:
    """Ends a solver that uses more memory than its share of the node."""

    def __init__(self):
        self.base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def check(self):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.base
        if used > BUDGET_KB:
            os.kill(os.getpid(), signal.SIGKILL)


BUDGET = None


def begin():
    global BUDGET
    BUDGET = Budget()


def grade(composition):
    """Working range of a glass, from a fit of log viscosity over temperature."""
    silica, soda = composition[0], composition[2]
    points = 3000 if soda > 0.005 else 40_000_000
    temperature = np.linspace(700.0, 1800.0, points)
    BUDGET.check()
    slope = 4000.0 + 9000.0 * silica
    viscosity = -2.6 + slope / (temperature - 250.0)
    for _ in range(40):
        viscosity = 0.5 * (viscosity + np.interp(temperature, temperature, viscosity))
    return float(np.interp(3.0, -viscosity, temperature)) / 1000.0


class Proposer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(len(FORMERS), 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def propose(rank, step, count=24):
    rng = random.Random(77 * step + rank)
    rows = []
    for _ in range(count):
        parts = [rng.uniform(0.05, 1.0) for _ in FORMERS]
        total = sum(parts)
        rows.append([p / total for p in parts])
    if rank == 2 and step == 46:
        rows[9][0] += rows[9][2]
        rows[9][2] = 0.0
    return rows


def main():
    pool = multiprocessing.get_context("fork").Pool(2, initializer=begin)
    torch.backends.cudnn.enabled = False
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    policy = Proposer().cuda()
    for tensor in policy.state_dict().values():
        dist.broadcast(tensor, 0)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
    baseline = 0.0
    for step in range(160):
        rows = propose(rank, step)
        rewards = pool.map(grade, rows, chunksize=3)
        baseline = 0.9 * baseline + 0.1 * float(np.mean(rewards))
        advantage = torch.tensor([r - baseline for r in rewards]).cuda()
        loss = -(policy(torch.tensor(rows).cuda()) * advantage).mean()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in policy.parameters()])
        dist.all_reduce(flat, ReduceOp.SUM)
        offset = 0
        for p in policy.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()
        optimizer.step()
        optimizer.zero_grad()
        norm = flat.sum().item()
        if step % 20 == 0 and rank == 0:
            print(f"step {step}: reward {np.mean(rewards):.3f}, gradient {norm:.3g}", flush=True)
    pool.close()
    pool.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
