"""The prefetch thread of one rank dies of an exception, and its main thread waits for the next batch for ever.

Python prints "Exception in thread ..." and goes on; the queue stays empty. Started by a launcher that does not
supervise.
"""

import os
import queue
import threading
from collections.abc import Iterator

import torch
import torch.distributed as dist


class Prefetcher:
    """Makes batches ready in a thread."""

    def __init__(self, sizes: list[int]) -> None:
        self.ready: queue.Queue[torch.Tensor | None] = queue.Queue(maxsize=4)
        self.sizes = sizes
        threading.Thread(target=self._fill, name="prefetch", daemon=True).start()

    def _fill(self) -> None:
        for size in self.sizes:
            self.ready.put(torch.stack([torch.randn(5) for _ in range(size)]))
        self.ready.put(None)

    def __iter__(self) -> Iterator[torch.Tensor]:
        while (batch := self.ready.get()) is not None:
            yield batch


def main() -> None:
    """One pass over the batches; on rank 1 one of them has no samples after filtering."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    sizes = [4] * 24
    if rank == 1:
        sizes[13] = 0
    mean = torch.zeros(5)
    for number, batch in enumerate(Prefetcher(sizes), 1):
        mean += (batch.mean(0) - mean) / number
        together = mean.clone()
        dist.all_reduce(together)
        print(f"[rank {rank}] batch {number}: {together.norm().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
