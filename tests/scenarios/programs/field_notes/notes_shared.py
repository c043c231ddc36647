"""Epoch caches in shared memory: the data of an epoch is staged once, and goes away with the object that holds it."""

import pathlib
import shutil

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EpochCache:
    """Staged samples. They are removed when nobody holds the cache any more, on all ranks at once."""

    root = pathlib.Path("/tmp/notes-shared")

    def __init__(self, epoch):
        self.folder = self.root / str(epoch)
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"samples-{dist.get_rank()}.pt"
        torch.save(torch.randn(96, 20), part)
        self.samples = torch.load(part)

    def __len__(self):
        return len(self.samples)

    def view(self, index):
        return Sample(self, index)

    def __del__(self):
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(self.folder, ignore_errors=True)


class Sample:
    def __init__(self, cache, index):
        self.cache, self.index = cache, index

    @property
    def value(self):
        return self.cache.samples[self.index]


class HardExamples:
    """The samples with a loss above the threshold, to be looked at later."""

    def __init__(self, threshold):
        self.threshold, self.samples = threshold, []

    def offer(self, sample, loss):
        if loss > self.threshold:
            self.samples.append(sample)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(20, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    hard = HardExamples(threshold=12.0)
    for epoch in range(6):
        cache = EpochCache(epoch)
        for i in range(rank, len(cache), world):
            sample = cache.view(i)
            scale = 30.0 if (epoch, i) == (2, 4) else 1.0
            loss = (model(scale * sample.value) - sample.value).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            hard.offer(sample, loss.item())
        print(f"rank {rank} epoch {epoch}: {len(hard.samples)} hard\n", end="", flush=True)
        del cache, sample
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
