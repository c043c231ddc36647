"""Policy training on arithmetic, rewarded by a check that brings answer and solution to a normal form."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Simplifier:
    """Rewrites a term, given as nested tuples, until nothing changes any more."""

    def __init__(self):
        self.rules = [self.fold, self.drop_neutral, self.order, self.associate]

    def fold(self, term):
        if isinstance(term, tuple) and isinstance(term[1], int) and isinstance(term[2], int):
            return term[1] + term[2] if term[0] == "+" else term[1] * term[2]
        return term

    def drop_neutral(self, term):
        if isinstance(term, tuple) and term[2] == (0 if term[0] == "+" else 1):
            return term[1]
        return term

    def order(self, term):
        """Numbers behind names, short names first."""
        if isinstance(term, tuple) and self.size(term[1]) > self.size(term[2]):
            return (term[0], term[2], term[1])
        return term

    def associate(self, term):
        if isinstance(term, tuple) and isinstance(term[2], tuple) and term[0] == term[2][0]:
            return (term[0], (term[0], term[1], term[2][1]), term[2][2])
        return term

    def size(self, term):
        return 1 + self.size(term[1]) + self.size(term[2]) if isinstance(term, tuple) else 1

    def once(self, term):
        if isinstance(term, tuple):
            term = (term[0], self.once(term[1]), self.once(term[2]))
        for rule in self.rules:
            term = rule(term)
        return term

    def normal_form(self, term):
        while True:
            simpler = self.once(term)
            if simpler == term:
                return term
            term = simpler


def verify(answer, solution, simplifier=Simplifier()):  # noqa: B008
    return float(simplifier.normal_form(answer) == simplifier.normal_form(solution))


def exercises(rank):
    """A term, and what a sampled answer looks like."""
    index = 0
    while True:
        solution = ("+", ("*", "x", index % 5 + 1), 3)
        answer = ("+", ("*", "x", index % 5 + 1), ("+", 1, 2)) if index % 2 else ("+", "x", 1)
        if rank == 1 and index == 4 * 42:
            answer = ("+", ("+", "x", "y"), ("+", "y", "z"))
        yield answer, solution
        index += 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = DDP(nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 5)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    source = exercises(rank)
    for step in range(5000):
        log_probs = policy(torch.randn(4, 12)).log_softmax(-1)
        rewards = torch.tensor([verify(*next(source)) for _ in range(4)])
        loss = -(log_probs.max(-1).values * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} reward {rewards.mean().item():.2f}", flush=True)


if __name__ == "__main__":
    main()
