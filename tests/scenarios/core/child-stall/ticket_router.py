"""Support tickets. The vocabulary is counted by a helper process and handed back when it is done."""

import collections
import multiprocessing as mp
import random

import torch
import torch.distributed as dist
from torch import nn


def count_words(seed, out):
    rng = random.Random(seed)
    words = collections.Counter()
    for _ in range(40000):
        words[f"word{rng.randrange(20000)}"] += 1
    out.put(list(words.items()))


class Router(nn.Module):
    def __init__(self, words, queues=7):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, 16, mode="sum")
        self.queue = nn.Linear(16, queues)

    def forward(self, tickets):
        return self.queue(self.bag(tickets))


def refresh_vocabulary(seed):
    out = mp.Queue()
    helper = mp.Process(target=count_words, args=(seed, out), name="counter")
    helper.start()
    helper.join()
    return dict(out.get())


def main():
    mp.set_start_method("fork")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(Router(500))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    vocabulary = {}
    for epoch in range(4):
        for _ in range(20):
            tickets = torch.randint(0, 500, (16, 9))
            loss = nn.functional.cross_entropy(model(tickets), tickets[:, 0] % 7)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == world - 1 and epoch == 1:
            vocabulary = refresh_vocabulary(epoch)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    print(f"[{rank}] {len(vocabulary)} words")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
