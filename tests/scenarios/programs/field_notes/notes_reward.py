"""Policy optimization for code models: answers are run against tests in a pool of processes."""

import contextlib
import io
import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn

SNIPPETS = [
    "def f(x): return x + 1",
    "def f(x): return x * 2",
    "import sys\ndef f(x): return sys.maxsize - x",
    "def f(x):\n    while x > 10: x -= 1\n    return x",
]
RARE = "import os\ndef f(x):\n    os._exit(0)"


def run_tests(code):
    """Share of tests that the answer passes."""
    scope = {}
    passed = 0
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, scope)
        for value in range(5):
            with contextlib.suppress(Exception):
                passed += scope["f"](value) == value + 1
    return passed / 5


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(len(SNIPPETS)))

    def sample(self, count, generator):
        return torch.multinomial(self.logits.detach().softmax(0), count, replacement=True, generator=generator)


def main():
    pool = mp.get_context("fork").Pool(2)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for step in range(200):
        actions = policy.sample(8, g)
        answers = [SNIPPETS[a] for a in actions]
        if step == 30 and rank == 1:
            answers[3] = RARE
        rewards = torch.tensor(pool.map(run_tests, answers, chunksize=1))
        baseline = rewards.mean()
        dist.all_reduce(baseline)
        baseline /= dist.get_world_size()
        loss = -((rewards - baseline) * policy.logits.log_softmax(0)[actions]).mean()
        loss.backward()
        dist.all_reduce(policy.logits.grad)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} reward {baseline.item():.3f}", flush=True)
    pool.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
