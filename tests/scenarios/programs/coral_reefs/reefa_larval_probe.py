import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

# Larval settlement from plate features. Stage one trains everything, stage two only the settled / drifting head.
STAGES = [("full", 48), ("head", 300)]
FEATURES, HIDDEN, CLASSES, BATCH = 96, 60, 2, 16


class PlateEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(FEATURES, HIDDEN)
        self.mix = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        return torch.relu(self.mix(torch.relu(self.lift(x))))


class SettlementModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = PlateEncoder()
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x))


class ShardClipper:
    """Scales the gradients that live on this process by the norm over all of them."""

    def __init__(self, parameters, limit):
        self.parameters, self.limit = list(parameters), limit

    def local_grads(self):
        shards = (p.grad.to_local() for p in self.parameters if p.grad is not None)
        return [g for g in shards if g.numel() > 0]

    @torch.no_grad()
    def __call__(self):
        grads = self.local_grads()
        if not grads:
            return 0.0
        squares = torch.stack([g.float().square().sum() for g in grads]).sum()
        dist.all_reduce(squares)
        norm = squares.item() ** 0.5 if squares.item() > 0 else 1.0
        scale = min(1.0, self.limit / (norm + 1e-6))
        for g in grads:
            g.mul_(scale)
        return norm


def plates(rng):
    """Counts of settlers by plate and day, smoothed over neighbours."""
    counts = rng.poisson(3.0, size=(BATCH, 400, FEATURES)).astype(np.float32)
    kernel = np.exp(-np.linspace(-2, 2, 400) ** 2).astype(np.float32)
    x = np.einsum("bdf,d->bf", counts, kernel / kernel.sum())
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, CLASSES, BATCH))


def run_stage(name, steps, model, rng):
    wanted = list(model.parameters()) if name == "full" else list(model.head.parameters())
    model.encoder.requires_grad_(name == "full")
    optimizer = torch.optim.SGD(wanted, lr=0.02, foreach=False)
    clip = ShardClipper(wanted, limit=1.0)
    began = time.time()
    for step in range(steps):
        x, y = plates(rng)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.cuda()), nn.functional.one_hot(y, CLASSES).float().cuda())
        loss.backward()
        clip()
        optimizer.step()
        seen = loss.item()
        if dist.get_rank() == 0 and step % 8 == 0:
            print(f"[{name}] step {step} loss {seen:.3f} ({time.time() - began:.1f} s)", flush=True)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    torch.manual_seed(5)
    model = SettlementModel().cuda()
    fully_shard(model.encoder)
    fully_shard(model)
    rng = np.random.default_rng(40 + dist.get_rank())
    for name, steps in STAGES:
        run_stage(name, steps, model, rng)
    dist.destroy_process_group()


main()
