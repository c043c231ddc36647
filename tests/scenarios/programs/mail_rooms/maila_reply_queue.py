"""Improves reply drafts: drafts come over a queue from a writer process, are collected by one rank and shared."""
import multiprocessing
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS, LENGTH, NEEDED = 300, 16, 12


def writer(drafts, rounds, seed):
    """Writes one draft after another; the second pile is about hard letters."""
    rng = random.Random(seed)
    for number in range(rounds):
        for _ in range(NEEDED):
            time.sleep(rng.uniform(0.9, 1.5) if number == 1 else 0.05)
            drafts.put([rng.randrange(WORDS) for _ in range(LENGTH)])


class Collector:
    def __init__(self, rounds):
        context = multiprocessing.get_context("spawn")
        self.drafts = context.Queue(maxsize=64)
        self.process = context.Process(target=writer, args=(self.drafts, rounds, 5), name="writer", daemon=True)
        self.process.start()

    def pile(self):
        pile, begin = [], time.monotonic()
        while len(pile) < NEEDED:
            pile.append(self.drafts.get(timeout=30))
            if len(pile) % 4 == 0:
                print(f"collected {len(pile)}/{NEEDED} drafts in {time.monotonic() - begin:.1f} s", flush=True)
        return pile

    def close(self):
        self.process.join(timeout=10)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.score = nn.Linear(32, 1)

    def forward(self, ids):
        return self.score(self.words(ids).mean(1)).squeeze(1)


def learn(model, optimizer, pile, repeats=90):
    ids = torch.tensor(pile)
    wanted = (ids < 30).float().mean(1)
    for _ in range(repeats):
        loss = (model(ids) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main(rounds=4):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    model = DistributedDataParallel(Critic())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    collector = Collector(rounds) if rank == 0 else None
    for number in range(rounds):
        box = [collector.pile() if collector else None]
        dist.broadcast_object_list(box, src=0)
        loss = learn(model, optimizer, box[0])
        if rank == 0:
            print(f"round {number}: {loss:.5f}", flush=True)
    if collector:
        collector.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
