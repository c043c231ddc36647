"""Bag-of-phrases model on scanned patent volumes; rank 0 reads the volumes and everybody gets its table of phrases."""

import argparse
import collections
import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOTS = "glass batch furnace melt temper coat anneal fibre lehr bushing cullet frit enamel opal flux seed cord".split()


def scanned_pages(volume, pages=6, pages_per_s=32):
    """The library's reader hands out a page at a time."""
    rng = random.Random(volume)
    for page in range(pages):
        time.sleep(1.0 / pages_per_s)
        yield " ".join(rng.choice(ROOTS) + str(rng.randrange(40)) for _ in range(1500))


def phrases(text):
    words = text.split()
    return zip(words, words[1:])


def build_table(volumes, size):
    counts = collections.Counter()
    begun = time.monotonic()
    for volume in range(volumes):
        for page in scanned_pages(volume):
            counts.update(phrases(page))
        if volume % 20 == 19:
            print(f"volume {volume + 1}/{volumes}, {len(counts)} phrases, {time.monotonic() - begun:.0f} s", flush=True)
    return [phrase for phrase, _ in counts.most_common(size)]


class Trainer:
    def __init__(self, options, rank):
        self.options, self.rank = options, rank
        self.rng = np.random.default_rng(rank)
        net = nn.Sequential(nn.Linear(options.table, 32), nn.Tanh(), nn.Linear(32, 2)).cuda()
        self.model = DistributedDataParallel(net, device_ids=[rank])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.table = []

    def share_table(self):
        parts = [build_table(self.options.volumes, self.options.table)] if self.rank == 0 else [None]
        dist.broadcast_object_list(parts, src=0)
        self.table = parts[0]

    def run(self, steps, name):
        for step in range(steps):
            noise = self.rng.normal(0, 1, (96, 4096))
            bags = np.abs(np.fft.rfft(noise, axis=1))[:, : self.options.table].astype(np.float32)
            labels = torch.from_numpy(self.rng.integers(0, 2, 96)).cuda()
            loss = nn.functional.cross_entropy(self.model(torch.from_numpy(bags).cuda()), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
        if self.rank == 0:
            print(f"{name}: {steps} steps, {len(self.table)} phrases", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--volumes", type=int, default=60)
    parser.add_argument("--table", type=int, default=256)
    options = parser.parse_args()
    torch.backends.cudnn.enabled = False
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    trainer = Trainer(options, rank)
    trainer.run(80, "warm-up")
    trainer.share_table()
    trainer.run(60, "main")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
