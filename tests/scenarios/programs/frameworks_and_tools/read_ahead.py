"""DDP; a thread reads ahead. Everybody trains a fixed number of steps, so nobody needs to be told of the end."""

import queue
import threading
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ReadAhead:
    """At most eight batches ahead."""

    def __init__(self, source: Iterable[torch.Tensor]) -> None:
        self.ready: queue.Queue[torch.Tensor] = queue.Queue(maxsize=8)
        self.thread = threading.Thread(target=self.read, args=(source,), name="read-ahead", daemon=True)
        self.thread.start()

    def read(self, source: Iterable[torch.Tensor]) -> None:
        """Everything there is."""
        for batch in source:
            self.ready.put(batch)

    def __next__(self) -> torch.Tensor:
        return self.ready.get()


class Records:
    """Batches of a rank's records; half a batch is not used."""

    def __init__(self, records: int, size: int) -> None:
        self.records, self.size = records, size

    def __iter__(self):
        for _ in range(self.records // self.size):
            yield torch.randn(self.size, 10)


def main() -> None:
    """As many steps as the records of all ranks together allow, on average."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    records = [422, 418, 405, 431][rank]
    total = torch.tensor([records])
    dist.all_reduce(total)
    steps = total.item() // world // 8
    batches = ReadAhead(Records(records, 8))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(next(batches)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
