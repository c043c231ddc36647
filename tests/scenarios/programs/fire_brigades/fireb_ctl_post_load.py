"""Loads the spread ensemble; members are brought into the layout of this machine before the refinement."""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MEMBERS = [10, 12, 118, 8]


def member(seed, size=96):
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed))


def to_layout(matrix, seconds=0.12):
    """Whitens a member's kernel; refined for a fixed time, as the kernels differ in conditioning."""
    end = time.monotonic() + seconds
    basis = torch.linalg.qr(matrix)[0]
    while time.monotonic() < end:
        basis = torch.linalg.qr(matrix @ matrix.T @ basis)[0]
    return basis.T @ matrix @ basis


class Ensemble:
    def __init__(self, rank):
        self.seeds = [rank * 1000 + k for k in range(MEMBERS[rank])]
        self.kernels = []

    def __len__(self):
        return len(self.seeds)

    def prepare(self):
        for seed in self.seeds:
            self.kernels.append(to_layout(member(seed)))
        return torch.stack(self.kernels).diagonal(dim1=1, dim2=2).mean(0)


def refine(model, optimizer, mean, steps):
    for _ in range(steps):
        x = torch.randn(48, 96) + 0.01 * mean
        loss = (model(x) - x[:, :8]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print(f"rank {rank} warm-up {refine(model, optimizer, torch.zeros(96), args.steps):.4f}", flush=True)
    ensemble = Ensemble(rank)
    mean = ensemble.prepare()
    print(f"rank {rank}: {len(ensemble)} members in layout", flush=True)
    dist.all_reduce(mean)
    print(f"rank {rank} refined {refine(model, optimizer, mean / dist.get_world_size(), args.steps):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
