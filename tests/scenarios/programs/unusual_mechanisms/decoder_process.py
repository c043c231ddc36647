"""Each rank has a decoder process that fills a ``multiprocessing.Queue``; one of them meets a file it cannot decode.

The decoder ends with a traceback of its own, and nobody asks after it. Run by ``torchrun --nproc-per-node 3``.
"""

import multiprocessing
import struct
from collections.abc import Iterator
from multiprocessing.queues import Queue

import torch
import torch.distributed as dist


def files(rank: int) -> Iterator[bytes]:
    """What is on this rank's disk; one file was cut off in a copy."""
    for number in range(60):
        content = struct.pack("<8f", *(float(number + i) for i in range(8)))
        yield content[:-3] if (rank, number) == (2, 33) else content


def decode_all(rank: int, out: "Queue[list[float]]") -> None:
    """The decoder process."""
    for content in files(rank):
        out.put(list(struct.unpack("<8f", content)))


class Feed:
    """Batches from the decoder process."""

    def __init__(self, rank: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.queue: Queue[list[float]] = context.Queue(maxsize=4)
        self.process = context.Process(target=decode_all, args=(rank, self.queue), daemon=True)
        self.process.start()

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(60):
            yield torch.tensor(self.queue.get())


def main() -> None:
    """Average everything."""
    dist.init_process_group("gloo")
    mean = torch.zeros(8)
    for count, batch in enumerate(Feed(dist.get_rank()), 1):
        dist.all_reduce(batch)
        mean += (batch / dist.get_world_size() - mean) / count
    print(mean, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
