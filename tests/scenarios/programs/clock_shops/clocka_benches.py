"""Two benches at a time exchange the statistics of their open repairs; all agree on a ranking."""
from __future__ import annotations

import os
import time
from itertools import count

import torch
import torch.distributed as dist

PAIRS = [(0, 1), (1, 2), (0, 2)]
FEATURES = 256


class Backlog:
    """Open repairs on every bench. The book is public, so each bench knows all numbers."""

    def __init__(self, start=(82, 52, 12), change=((-1, 0), (0, 0), (2, 1))):
        self.open = list(start)
        self.change = change

    def tick(self, step):
        for bench, (each, bonus) in enumerate(self.change):
            self.open[bench] += each + (bonus if step % 8 == 0 else 0)
        self.open = [max(n, 1) for n in self.open]


class Bench:
    def __init__(self, rank, device):
        self.rank, self.device = rank, device
        self.book = Backlog()
        self.gen = torch.Generator().manual_seed(rank)
        self.weights = torch.zeros(FEATURES, device=device)

    def statistics(self):
        repairs = torch.rand(self.book.open[self.rank], FEATURES, generator=self.gen)
        order = repairs.sum(1).argsort(descending=True)
        time.sleep(0.08)
        return repairs[order].mean(0).to(self.device)

    def exchange(self, mine, peer):
        theirs = torch.empty_like(mine)
        # The busier bench talks first.
        if self.book.open[self.rank] > self.book.open[peer]:
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(mine, dst=peer)
        return theirs

    def round(self, step):
        mine = self.statistics()
        pair = PAIRS[step % len(PAIRS)]
        if self.rank in pair:
            peer = pair[1 - pair.index(self.rank)]
            mine = mine + self.exchange(mine, peer)
        self.weights.mul_(0.9).add_(mine)
        shared = self.weights.clone()
        dist.all_reduce(shared)
        ranking = shared.cpu().argsort(descending=True)[:3].tolist()
        self.book.tick(step)
        return ranking


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    bench = Bench(dist.get_rank(), torch.device("cuda", local))
    for step in count():
        ranking = bench.round(step)
        if step % 9 == 0 and bench.rank == 0:
            print(f"round {step}: first {ranking}, open {bench.book.open}", flush=True)
        if step >= 200:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
