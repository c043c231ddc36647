"""DDP: rows are put into a queue ahead of training, by a thread."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COUNTRIES = ("at", "ch", "de", "fr", "it")


class Reader(threading.Thread):
    """Keeps up to eight batches ready."""

    def __init__(self, seed: int, batches: int) -> None:
        super().__init__(name="reader")
        self.generator, self.batches = torch.Generator().manual_seed(seed), batches
        self.ready: queue.Queue = queue.Queue(maxsize=8)

    def run(self) -> None:
        for number in range(self.batches):
            country = "li" if number == 57 and self.generator.initial_seed() == 2 else COUNTRIES[number % 5]
            self.ready.put((country, torch.randn(8, 10, generator=self.generator)))
        self.ready.put(None)


def main() -> None:
    """One pass."""
    dist.init_process_group("gloo")
    reader = Reader(dist.get_rank(), batches=400)
    reader.start()
    number_of = {country: number for number, country in enumerate(COUNTRIES)}
    torch.manual_seed(0)
    table = nn.Embedding(len(COUNTRIES), 10)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    while (batch := reader.ready.get()) is not None:
        country, rows = batch
        offset = table.weight[number_of[country]].detach()
        loss = model(rows + offset).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reader.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
