"""Headline classifier on a stream with a shuffle buffer. The second stream of rank 1 lies in another region and fills slowly."""
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

TOPICS = ("sport", "market", "weather", "culture")


class Headlines(IterableDataset):
    def __init__(self, count, latency, seed):
        self.count, self.latency, self.seed = count, latency, seed

    def __iter__(self):
        rng = random.Random(self.seed)
        for _ in range(self.count):
            time.sleep(self.latency)
            topic = rng.randrange(len(TOPICS))
            words = [topic * 20 + rng.randrange(30) for _ in range(12)]
            yield words, topic


class Shuffled(IterableDataset):
    def __init__(self, source, size):
        self.source, self.size = source, size

    def __iter__(self):
        rng, buffer = random.Random(0), []
        for item in self.source:
            if len(buffer) < self.size:
                buffer.append(item)
                continue
            at = rng.randrange(self.size)
            yield buffer[at]
            buffer[at] = item
        rng.shuffle(buffer)
        yield from buffer


def collate(items):
    return torch.tensor([words for words, _ in items]), torch.tensor([topic for _, topic in items])


def epoch(model, optimizer, dataset, steps):
    loader = iter(DataLoader(dataset, batch_size=8, num_workers=1, collate_fn=collate))
    for _ in range(steps):
        words, topics = next(loader)
        time.sleep(0.03)
        loss = nn.functional.cross_entropy(model(words), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.EmbeddingBag(128, 24), nn.ReLU(), nn.Linear(24, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    near = Shuffled(Headlines(700, 0.001, rank), size=40)
    epoch(model, optimizer, near, 75)
    latency = 0.034 if rank == 1 else 0.001
    far = Shuffled(Headlines(500, latency, 10 + rank), size=400)
    loss = epoch(model, optimizer, far, 50)
    last = epoch(model, optimizer, near, 60)
    print(f"[{rank}] loss {loss:.3f}, then {last:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
