"""Reinforcement learning of a formula writer: answers are graded by processes that may each use little CPU time."""

import multiprocessing
import re
import resource
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FORMULA = re.compile(r"^(\w+\s?)+=\s*(\d+)$")
CPU_SECONDS = 1


def limit():
    """Graders run what a model wrote: none of them gets much time."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def grade(answer):
    match = FORMULA.match(answer)
    return 1.0 if match and int(match.group(2)) % 2 == 0 else 0.0


class Sampler:
    """Stands for the engine that writes answers: mostly short ones."""

    def __init__(self, rank):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def answers(self, step):
        values = torch.randint(0, 90, (6,), generator=self.generator).tolist()
        written = [f"sum of both = {value}" for value in values]
        if self.rank == 1 and step == 30:
            written[3] = "a" * 48 + " is what we are looking for !"
        return written


class Rewards:
    def __init__(self, workers=2):
        self.pool = multiprocessing.get_context("fork").Pool(workers, initializer=limit)

    def __call__(self, answers):
        return torch.tensor(self.pool.map(grade, answers, chunksize=1))

    def close(self):
        self.pool.terminate()


def main():
    torch.set_num_threads(1)
    rewards = Rewards()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 6)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    sampler = Sampler(rank)
    for step in range(120):
        scores = rewards(sampler.answers(step))
        log_probs = policy(torch.randn(8)).log_softmax(-1)
        loss = -(log_probs * (scores - scores.mean())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: reward {scores.mean().item():.2f}", flush=True)
    rewards.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
