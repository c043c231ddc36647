"""Policy for the order of vessels at a lock, by simulated days; each process simulates its own lock."""
import heapq
import random
import time

import torch
import torch.distributed as dist
from torch import nn


class LockDay:
    """Event simulation: vessels arrive, wait for the chamber, and are asked for a priority."""

    def __init__(self, seed, vessels):
        self.random = random.Random(seed)
        self.vessels = vessels

    def run(self, policy):
        events, waiting, total, chamber = [], [], 0.0, 0.0
        for n in range(self.vessels):
            heapq.heappush(events, (self.random.random() * 1440, n))
        log_probs = []
        while events or waiting:
            while events and (not waiting or events[0][0] <= chamber):
                at, n = heapq.heappop(events)
                waiting.append((at, self.random.random()))
            x = torch.tensor([[a / 1440, size] for a, size in waiting[:16]])
            pick = torch.distributions.Categorical(logits=policy(x).squeeze(1))
            index = pick.sample()
            log_probs.append(pick.log_prob(index))
            at, size = waiting.pop(int(index))
            chamber = max(chamber, at) + 12 + 10 * size
            total += chamber - at
        return torch.stack(log_probs).sum(), -total / self.vessels / 600


def simulate(policy, rank, round_number):
    """Round 20 is the regatta, for which the big lock is simulated day by day until the weekend is over."""
    days = 1
    budget = 13.0 if (rank == 2 and round_number == 20) else 0.0
    started, results = time.monotonic(), []
    while True:
        results.append(LockDay(round_number * 1000 + days, 60).run(policy))
        days += 1
        if time.monotonic() - started >= budget:
            break
        results = results[-4:]
    return results, days - 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for round_number in range(60):
        results, days = simulate(policy, rank, round_number)
        loss = -sum(log_prob * reward for log_prob, reward in results) / len(results)
        counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, torch.tensor([float(days)]))
        optimizer.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        time.sleep(0.08)
        if rank == 0 and round_number % 5 == 0:
            print(f"round {round_number}: days {[int(c) for c in counts]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
