"""Long-context phase: streams shards again and again, keeps documents above the phase's minimum length."""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

PHASES = ((0, 64), (25, 256), (60, 1024))  # from step, minimum length


class LongDocuments(IterableDataset):
    def __init__(self, rank, minimum, longest):
        self.rank, self.minimum, self.longest = rank, minimum, longest

    def shard(self):
        generator = torch.Generator().manual_seed(self.rank)
        for _ in range(400):
            length = int(torch.randint(32, self.longest, (1,), generator=generator))
            yield torch.randint(0, 128, (length,), generator=generator)

    def __iter__(self):
        while True:
            for document in self.shard():
                if len(document) >= self.minimum:
                    yield document[: self.minimum]


def phase_of(step):
    return [minimum for start, minimum in PHASES if step >= start][-1]


def loader_for(rank, minimum, longest):
    return iter(DataLoader(LongDocuments(rank, minimum, longest), batch_size=4, num_workers=1, prefetch_factor=2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shortest-shard", type=int, default=1)
    short = parser.parse_args().shortest_shard
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    longest = 200 if rank == short else 1600
    model = DDP(nn.Sequential(nn.Embedding(128, 32), nn.Linear(32, 128)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    minimum, batches = None, None
    for step in range(200):
        if phase_of(step) != minimum:
            minimum = phase_of(step)
            print(f"rank {rank} step {step}: minimum length {minimum}", flush=True)
            batches = loader_for(rank, minimum, longest)
        ids = next(batches)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
