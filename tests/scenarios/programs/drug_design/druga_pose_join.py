"""Pose ranking under DDP: each process has the poses of its own targets, a process with few targets joins early."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TARGETS = {  # per process: (name, batches of poses, seconds of relaxation for each batch)
    0: [("cdk2", 90, 0.02)],
    1: [("egfr", 60, 0.02), ("braf", 40, 0.02)],
    2: [("trypsin", 110, 0.02), ("nav1.7", 13, 1.1)],
}


def relaxed(source, seconds):
    poses = torch.randn(16, 24, generator=source)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        poses = poses - 0.01 * torch.sin(poses)
    return poses


def batches(rank):
    source = torch.Generator().manual_seed(rank)
    for name, count, seconds in TARGETS[rank]:
        for _ in range(count):
            yield name, relaxed(source, seconds)


class Ranker:
    def __init__(self, rank):
        self.rank = rank
        net = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 1))
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, poses):
        loss = (self.model(poses).squeeze(-1) - poses.square().mean(1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        count, last = 0, None
        with self.model.join():
            for name, poses in batches(self.rank):
                loss = self.step(poses)
                count += 1
                if name != last:
                    print(f"rank {self.rank}: {name}, loss {loss:.4f}", flush=True)
                    last = name
        return count


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    count = torch.tensor(Ranker(dist.get_rank()).run())
    dist.all_reduce(count)
    if dist.get_rank() == 0:
        print(f"{int(count)} batches of poses ranked", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
