"""Trains on X-rays. Validation bootstraps its confidence interval and takes longer than training."""

import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def bootstrap(scores: list[float], seconds: float) -> tuple[float, float]:
    source, means = random.Random(0), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sample = source.choices(scores, k=len(scores))
        means.append(sum(sample) / len(sample))
    means.sort()
    return means[len(means) // 20], means[-len(means) // 20]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        for _ in range(10):
            rays = torch.rand(8, 20)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(rays), (rays[:, :1] > 0.5).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            scores = model.module(torch.rand(200, 20)).sigmoid().flatten()
        everything = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
        dist.all_gather(everything, scores)
        low, high = bootstrap(torch.cat(everything).tolist(), 3 + rank)
        if rank == 0:
            print(f"epoch {epoch}: {low:.3f} to {high:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
