"""A thread reads ahead and agrees with the other ranks on how long the next batch is; the main thread trains."""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist


class Ahead:
    """Batches of one length on every rank, read by a thread that has a group for itself."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.group = options, dist.new_group()
        self.ready: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
        self.thread = threading.Thread(target=self.read, name="prefetch", daemon=True)
        self.thread.start()

    def read(self) -> None:
        for number in range(self.options.batches):
            length = torch.tensor([self.length(number)])
            dist.all_reduce(length, op=dist.ReduceOp.MAX, group=self.group)
            self.ready.put(torch.ones(int(length)))

    def length(self, number: int) -> int:
        if number == 15 and dist.get_rank() == 1:
            if self.options.source == "stream":
                read_end, self.write_end = os.pipe()
                return len(os.read(read_end, 4096))
            if self.options.source == "broken":
                raise OSError("record 15 is cut short")
            if self.options.source == "slow":
                time.sleep(4)
        return 16 + number % 5

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.options.batches):
            yield self.ready.get()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="good")
    parser.add_argument("--batches", type=int, default=40)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    weights = torch.zeros(4)
    for number, batch in enumerate(Ahead(options)):
        gradient = batch.sum().repeat(4)
        dist.all_reduce(gradient)
        weights += gradient
        if number % 10 == 0:
            print(f"[rank {dist.get_rank()}] batch {number}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
