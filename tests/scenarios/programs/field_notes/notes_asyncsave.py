"""Pretraining with asynchronous distributed checkpoints. A planner adds checksums of what is written."""

import hashlib
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

ROOT = "/tmp/notes-asyncsave"


class ChecksumPlanner(DefaultSavePlanner):
    """Embedding tables are large, and they are on one rank."""

    def create_local_plan(self):
        self.sums = {}
        for key, value in self.state_dict.items():
            if isinstance(value, torch.Tensor):
                self.sums[key] = hashlib.sha256(value.numpy().tobytes()).hexdigest()
        if f"table.{dist.get_rank()}" in self.state_dict:
            time.sleep(7.0)
        return super().create_local_plan()


class Manager:
    def __init__(self):
        self.pending = None

    def save(self, state, step):
        if self.pending is not None:
            self.pending.result()
        self.pending = dcp.async_save(state, checkpoint_id=f"{ROOT}/step-{step}", planner=ChecksumPlanner())
        self.prune(keep=2)
        dist.barrier()

    def prune(self, keep):
        """Deletes what is older; slow on network disks."""
        time.sleep(2.5)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        shutil.rmtree(ROOT, ignore_errors=True)
    dist.barrier()
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    extra = {"table.1": torch.randn(2000, 32)} if rank == 1 else {}
    manager = Manager()
    for step in range(1, 61):
        loss = model(torch.randn(16, 32)).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.01 * p.grad
            p.grad = None
        if step % 20 == 0:
            manager.save({**{k: v.detach() for k, v in model.state_dict().items()}, **extra}, step)
            print(f"rank {rank}: saved step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
