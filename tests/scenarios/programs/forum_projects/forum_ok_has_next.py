"""Streaming with DDP and torchmetrics: all ranks agree before each step whether everybody still has a batch."""

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

torch.set_num_threads(1)


class Stream:
    """Batches of this rank. A thread warms the cache of a block of records before the block is read."""

    def __init__(self, rank: int, blocks: int, per_block: int = 40):
        self.rank, self.blocks, self.per_block = rank, blocks, per_block
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="warm")

    def warm(self, block: int) -> int:
        """Checks the records' digests; block 2 of rank 1 is the one with the long records."""
        end = time.monotonic() + (9.0 if (self.rank, block) == (1, 2) else 0.2)
        digest = b"block %d" % block
        while time.monotonic() < end:
            digest = hashlib.sha256(digest * 4000).digest()
        return digest[0]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for block in range(self.blocks):
            seed = self.pool.submit(self.warm, block).result()
            generator = torch.Generator().manual_seed(seed)
            for _ in range(self.per_block - self.rank):
                x = torch.randn(16, 12, generator=generator)
                yield x, (x[:, :3].argmax(1))


def in_step(stream: Stream):
    """The batches up to the first point at which some rank has none."""
    iterator = iter(stream)
    while True:
        batch = next(iterator, None)
        there = torch.tensor(int(batch is not None))
        dist.all_reduce(there, op=dist.ReduceOp.MIN)
        if not there.item():
            return
        yield batch


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    accuracy, mean = MulticlassAccuracy(num_classes=3), MeanMetric()
    steps = 0
    for x, y in in_step(Stream(rank, blocks=4)):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy.update(logits.detach(), y)
        mean.update(loss.detach())
        steps += 1
    values = accuracy.compute().item(), mean.compute().item()
    print(f"rank {rank}: {steps} steps, accuracy {values[0]:.3f}, loss {values[1]:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
