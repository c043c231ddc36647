"""Rollouts of a dialogue policy are scored by worker processes; one conversation takes much longer to judge."""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor

import torch
import torch.distributed as dist
from torch import nn


def judge(conversation):
    """Aligns the turns with a template, cell by cell: long conversations are expensive."""
    template = [k % 7 for k in range(len(conversation))]
    row = list(range(len(template) + 1))
    for i, turn in enumerate(conversation, 1):
        above, row[0] = row[0], i
        for j, wanted in enumerate(template, 1):
            above, row[j] = row[j], min(above + (turn != wanted), row[j] + 1, row[j - 1] + 1)
    return 1.0 - row[-1] / len(conversation)


def rollouts(rank, step):
    rng = random.Random(1000 * rank + step)
    lengths = [rng.randrange(10, 40) for _ in range(12)]
    if rank == 2 and step == 25:
        lengths[5] = 5500
    return [[rng.randrange(7) for _ in range(n)] for n in lengths]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy = nn.Linear(3, 1)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        for step in range(50):
            talks = rollouts(rank, step)
            futures = [pool.submit(judge, talk) for talk in talks]
            rewards = torch.tensor([f.result(timeout=300) for f in futures])
            features = torch.tensor([[len(t) / 50, t[0] / 7, t[-1] / 7] for t in talks])
            loss = nn.functional.mse_loss(policy(features).squeeze(1), rewards)
            policy.zero_grad()
            loss.backward()
            for parameter in policy.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data.sub_(0.01 / world * parameter.grad)
            time.sleep(0.03)
    dist.barrier()
    if rank == 0:
        print(f"loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
