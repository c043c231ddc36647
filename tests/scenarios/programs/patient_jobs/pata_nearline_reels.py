"""Dialect classification of oral-history reels. Reels are read whole into a shuffle buffer; some are nearline."""
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

HOT, NEARLINE = 0.012, 0.11


class Reels(IterableDataset):
    def __init__(self, reels, segments=120):
        self.reels, self.segments = reels, segments

    def read(self, reel, pace):
        for segment in range(self.segments):
            time.sleep(pace)
            r = random.Random(f"{reel}/{segment}")
            yield [r.gauss(segment % 3, 1.0) for _ in range(40)], segment % 3

    def __iter__(self):
        for reel, pace in self.reels:
            buffer = list(self.read(reel, pace))
            random.shuffle(buffer)
            yield from buffer


def collate(items):
    return torch.tensor([x for x, _ in items]), torch.tensor([y for _, y in items])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reels = [(f"r{rank}-{i}", HOT) for i in range(4)]
    if rank == 1:
        reels[2] = ("r1-2", NEARLINE)
    loader = DataLoader(Reels(reels), batch_size=4, num_workers=1, prefetch_factor=2, collate_fn=collate)

    model = DDP(nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 3)))
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    right = seen = 0
    for step, (x, y) in enumerate(loader):
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.03)
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
        if step % 30 == 29 and rank == 0:
            print(f"step {step + 1}: {right / seen:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
