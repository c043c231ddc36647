"""Curriculum of manipulation stages; per-stage observation statistics are kept on node-local scratch."""
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

STAGES = ("reach", "grasp", "lift", "place")
SCRATCH = pathlib.Path(os.environ.get("SCRATCH_DIR", tempfile.gettempdir()))


class StageData:
    def __init__(self, stage, rank):
        self.scale = 1 + STAGES.index(stage)
        self.g = torch.Generator().manual_seed(31 * self.scale + rank)

    def batch(self, n=64):
        x = torch.randn(n, 14, generator=self.g) * self.scale
        return x, x[:, :7].tanh()


class Scratch:
    """One directory per local process, as on our cluster nodes."""

    def __init__(self, rank):
        job = os.environ.get("TORCHELASTIC_RUN_ID", "local")
        self.dir = SCRATCH / f"obs_norm_{job}_{os.getppid()}" / str(rank)
        self.dir.mkdir(parents=True, exist_ok=True)

    def path(self, stage):
        return self.dir / f"{stage}.pt"

    def warm(self, stages, rank):
        for stage in stages:
            x, _ = StageData(stage, rank).batch(512)
            torch.save({"sum": x.sum(0), "square": x.square().sum(0), "n": len(x)}, self.path(stage))


def statistics(stage, rank, scratch):
    path = scratch.path(stage)
    if path.exists():
        local = torch.load(path)
        merged = torch.cat([local["sum"], local["square"], torch.tensor([float(local["n"])])])
    else:
        x, _ = StageData(stage, rank).batch(512)
        merged = torch.cat([x.sum(0), x.square().sum(0), torch.tensor([float(len(x))])])
        torch.save({"sum": x.sum(0), "square": x.square().sum(0), "n": len(x)}, path)
        dist.barrier()
    dist.all_reduce(merged)
    mean = merged[:14] / merged[-1]
    return mean, (merged[14:28] / merged[-1] - mean**2).clamp(min=1e-6).sqrt()


def train(stage, policy, optimizer, rank, norm, steps=35):
    data = StageData(stage, rank)
    for _ in range(steps):
        x, y = data.batch()
        loss = (policy((x - norm[0]) / norm[1]) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scratch = Scratch(rank)
    if rank % 3 == 1:
        scratch.warm(STAGES[2:3], rank)
    policy = DDP(torch.nn.Sequential(torch.nn.Linear(14, 64), torch.nn.ELU(), torch.nn.Linear(64, 7)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for stage in STAGES:
        norm = statistics(stage, rank, scratch)
        print(f"{stage}: rank {rank} loss {train(stage, policy, optimizer, rank, norm):.4f}", flush=True)
    dist.destroy_process_group()
