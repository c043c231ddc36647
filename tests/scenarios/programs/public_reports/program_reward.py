"""Rewards for programs that a policy has written: each is run on a test and its output compared."""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROGRAMS = {
    "sum": "a, b = map(int, input().split())\nprint(a + b)",
    "loop": "total = 0\nfor word in input().split():\n    total += int(word)\nprint(total)",
    "all": """
import sys
print(sum(int(word) for line in sys.stdin for word in line.split()))
""",
}


def code_exec(code: str, stdin: str) -> str:
    """What a program prints."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{stdin}\n".encode())
    process.stdin.flush()
    process.wait()
    return process.stdout.read().decode().strip()


def generate(rank: int, step: int) -> str:
    """A program of the policy."""
    if rank == 1 and step == 13:
        return PROGRAMS["all"]
    return PROGRAMS["loop" if (rank + step) % 2 else "sum"]


def main() -> None:
    """Thirty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Linear(6, 3)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        reward = torch.tensor(float(code_exec(generate(rank, step), f"{step} {rank}") == str(step + rank)))
        baseline = reward.clone()
        dist.all_reduce(baseline)
        advantage = reward - baseline / dist.get_world_size()
        (model(torch.randn(4, 6)).log_softmax(-1)[:, 0].mean() * advantage).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
