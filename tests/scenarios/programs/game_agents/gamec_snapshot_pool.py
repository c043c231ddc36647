"""Fictitious self-play against a pool of frozen snapshots, one per rating bracket."""
import copy
import random
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BRACKET = 25
# rating gained by the first generation, and how much less each later one gains
LEAGUES = [(60.0, 9.0), (60.0, 0.5), (55.0, 0.4)]


class Snapshot:
    """A frozen copy of the policy in one of the pool's memory slots."""

    def __init__(self, pool, policy, slot):
        self.pool = pool
        self.slot = slot
        self.policy = copy.deepcopy(policy).requires_grad_(False).eval()

    def __del__(self):
        self.pool.give_back(self.slot)


class SnapshotPool:
    def __init__(self, slots=128):
        self.free = list(range(slots))
        self.lock = threading.Lock()
        self.brackets = {}

    def give_back(self, slot):
        with self.lock:
            self.free.append(slot)

    def freeze(self, policy, rating):
        with self.lock:
            self.brackets[int(rating // BRACKET)] = Snapshot(self, policy, self.free.pop())

    def opponent(self, rng):
        with self.lock:
            return self.brackets[rng.choice(sorted(self.brackets))]


class Policy(nn.Module):
    def __init__(self, cells=100, width=512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(cells, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, cells)
        )

    def forward(self, board):
        return torch.log_softmax(self.net(board), -1)


def duel(policy, opponent, games=64, plies=5):
    board = torch.zeros(games, 100)
    logps = []
    for _ in range(plies):
        logp = policy(board)
        mine = logp.detach().exp().multinomial(1)
        with torch.no_grad():
            theirs = opponent.policy(-board).exp().multinomial(1)
        board = board.scatter(1, mine, 1.0).scatter(1, theirs, -1.0)
        logps.append(logp.gather(1, mine).squeeze(1))
    return torch.stack(logps).mean(0), board.sum(1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    policy = DistributedDataParallel(Policy())
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    rng = random.Random(rank)
    pool, rating = SnapshotPool(), 1000.0
    gain, decay = LEAGUES[rank % len(LEAGUES)]
    pool.freeze(policy.module, rating)
    for step in range(1, 401):
        opponent = pool.opponent(rng)
        logp, score = duel(policy.module, opponent)
        loss = -(logp * (score - score.mean())).mean() + 0.01 * policy(torch.zeros(1, 100)).pow(2).mean()
        opponent = None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            rating += max(6.0, gain - decay * (step // 8 - 1))
            pool.freeze(policy.module, rating)
            if rank == 1:
                print(f"step {step} rating {rating:.0f} pool {len(pool.brackets)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
