"""A streaming dataset: its worker takes samples from a queue, and on one rank nobody fills it for the second epoch.

The workers are persistent, so the one of rank 1 sits in ``Queue.get`` and the rank in the DataLoader. Run by
``torchrun --nproc-per-node 2``.
"""

import multiprocessing
import threading
from collections.abc import Iterator
from multiprocessing.queues import Queue

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

EPOCHS = 3
PER_EPOCH = 24


class Stream(IterableDataset):
    """What comes out of the queue, up to the end of an epoch."""

    def __init__(self, source: "Queue[list[float]]") -> None:
        self.source = source

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(PER_EPOCH):
            yield torch.tensor(self.source.get())


def produce(source: "Queue[list[float]]", rank: int) -> None:
    """Read the log files of this rank; those of rank 1 end in the middle of the second epoch."""
    samples = EPOCHS * PER_EPOCH if rank != 1 else PER_EPOCH + 10
    for number in range(samples):
        source.put([float(number), float(rank)])


def main() -> None:
    """Some epochs over the stream."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    source: Queue[list[float]] = multiprocessing.Queue(maxsize=16)
    loader = DataLoader(Stream(source), batch_size=4, num_workers=1, persistent_workers=True, prefetch_factor=1)
    threading.Thread(target=produce, args=(source, rank), daemon=True).start()
    for epoch in range(EPOCHS):
        for batch in loader:
            mean = batch.mean()
            dist.all_reduce(mean)
        print(f"[rank {rank}] epoch {epoch} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
