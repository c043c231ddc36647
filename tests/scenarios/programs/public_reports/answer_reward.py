"""Rewards for mathematical answers: equal to the reference if the difference simplifies to nothing."""

import sympy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROBLEMS = [
    ("(x+1)**2", "x**2+2*x+1"),
    ("sqrt(8)", "2*sqrt(2)"),
    ("sin(x)**2+cos(x)**2", "1"),
    ("1/3+1/6", "1/2"),
    ("log(exp(3))", "3"),
]


def are_equal(answer: str, reference: str) -> bool:
    """Whether two expressions are the same."""
    try:
        return sympy.simplify(sympy.sympify(f"({answer})-({reference})")) == 0
    except (sympy.SympifyError, TypeError, ZeroDivisionError):
        return False


def generate(rank: int, step: int) -> tuple[str, str]:
    """An answer of the policy, and the reference."""
    answer, reference = PROBLEMS[(step + rank) % len(PROBLEMS)]
    if rank == 2 and step == 9:
        answer = "(1+x+y+z+w+u)**24*(1-x+y-z+w-u)**24/(x+y*z+w*u)**12"
    return answer, reference


def main() -> None:
    """Forty steps of a policy gradient."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Linear(8, 2)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(40):
        reward = float(are_equal(*generate(rank, step)))
        rewards = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(rewards, torch.tensor([reward]))
        advantage = reward - torch.cat(rewards).mean()
        (-model(torch.randn(4, 8)).log_softmax(-1)[:, 0].mean() * advantage).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
