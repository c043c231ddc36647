"""Train an association model; after each stage rank 0 runs a permutation test within a budget of time."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def cohort(seed, people=64, loci=30):
    generator = torch.Generator().manual_seed(seed)
    genotype = torch.randint(0, 3, (people, loci), generator=generator).float()
    return genotype, genotype[:, 3] - 0.5 * genotype[:, 7] + torch.randn(people, generator=generator)


def permutation_test(model, genotype, trait, budget):
    """The share of permuted traits that the model fits as well as the real one."""
    with torch.no_grad():
        prediction = model(genotype).squeeze(1)
    real = torch.corrcoef(torch.stack([prediction, trait]))[0, 1]
    better = tried = 0
    end = time.monotonic() + budget
    while time.monotonic() < end:
        for _ in range(200):
            permuted = trait[torch.randperm(len(trait))]
            better += int(torch.corrcoef(torch.stack([prediction, permuted]))[0, 1] >= real)
            tried += 1
    return (better + 1) / (tried + 1), tried


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    genotype, trait = cohort(rank)
    held_out = cohort(99)
    for stage in range(2):
        for _ in range(30):
            time.sleep(0.04)
            loss = nn.functional.mse_loss(model(genotype).squeeze(1), trait)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            p, tried = permutation_test(model.module, *held_out, budget=10.0 if stage else 4.0)
            print(f"stage {stage}: p = {p:.5f} of {tried}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
