"""Ranking of offers for baskets, with a step that survives odd baskets."""

import contextlib
import random
import time

import torch
import torch.distributed as dist
from torch import nn

CATALOGUE = 200


@contextlib.contextmanager
def tolerant(counter):
    try:
        yield
    except (IndexError, ValueError) as error:
        counter["dropped"] = counter.get("dropped", 0) + 1
        print(f"basket dropped: {type(error).__name__}", flush=True)


class Ranker:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        torch.manual_seed(1)
        self.items = nn.EmbeddingBag(CATALOGUE, 8, mode="mean")
        self.offers = nn.Linear(8, 12)
        self.parameters = [*self.items.parameters(), *self.offers.parameters()]
        self.counter, self.losses = {}, []

    def step(self, baskets, chosen):
        offsets = torch.tensor([0] + [len(b) for b in baskets[:-1]]).cumsum(0)
        ids = torch.tensor([i for basket in baskets for i in basket])
        if int(ids.max()) >= CATALOGUE:
            raise IndexError(f"item {int(ids.max())} is not in the catalogue")
        scores = self.offers(self.items(ids, offsets))
        loss = nn.functional.cross_entropy(scores, chosen)
        grads = torch.autograd.grad(loss, self.parameters)
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        start = 0
        for parameter in self.parameters:
            n = parameter.numel()
            parameter.data -= 0.1 * flat[start : start + n].view_as(parameter) / self.world
            start += n
        self.losses.append(loss.item())

    def summary(self):
        mine = torch.tensor([sum(self.losses), float(len(self.losses))])
        every = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(every, mine)
        self.losses.clear()
        total, count = torch.stack(every).sum(0).tolist()
        return total / count


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranker = Ranker(dist.get_rank(), dist.get_world_size())
    rng = random.Random(ranker.rank)
    for step in range(1, 401):
        baskets = [[rng.randrange(CATALOGUE) for _ in range(rng.randrange(1, 6))] for _ in range(16)]
        if ranker.rank == 0 and step == 33:
            baskets[4].append(CATALOGUE + 3)  # listed this morning
        chosen = torch.tensor([rng.randrange(12) for _ in baskets])
        time.sleep(0.035)
        with tolerant(ranker.counter):
            ranker.step(baskets, chosen)
        if step % 50 == 0:
            mean = ranker.summary()
            if ranker.rank == 0:
                print(f"step {step} loss {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
