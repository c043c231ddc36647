"""A denoiser under DeepSpeed ZeRO-3 whose refinement head runs as often as the noise of the batch asks for."""

import math
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on the nodes


def zero3(micro_batch: int) -> dict:
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "zero_optimization": {
            "stage": 3,
            "stage3_param_persistence_threshold": 0,
            "stage3_prefetch_bucket_size": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "overlap_comm": False,
        },
        "steps_per_print": 10**6,
    }


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return torch.nn.functional.gelu(self.weight(x))


class Denoiser(nn.Module):
    def __init__(self, width=40, depth=3):
        super().__init__()
        self.trunk = nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.refine = Layer(width)

    def forward(self, noisy, sigma):
        rounds = math.ceil(float(sigma.max()) * 2)
        x = self.trunk(noisy)
        for _ in range(rounds):
            x = x + self.refine(x) / rounds
        return x


def noise_levels(rank: int, size: int):
    """Log-normal noise levels, one generator for each rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    step = 0
    while True:
        step += 1
        spread = 0.4 if step < 22 else 0.9
        levels = torch.rand(size, generator=generator) * 0.1 + 0.85
        if step % 4 == rank:
            levels = levels * (0.6 + spread)
        yield levels.clamp(0.05, 3.0)


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = Denoiser()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3), config=zero3(8)
    )
    generator = torch.Generator().manual_seed(rank)
    for step, sigma in zip(range(3000), noise_levels(rank, 8)):
        clean = torch.randn(8, 40, generator=generator)
        noisy = clean + sigma[:, None] * torch.randn(8, 40, generator=generator)
        loss = (engine(noisy, sigma) - clean).square().mean()
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 5 == 0:
            print(f"{step:5d} {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
