"""Statistics over two channels, each with a group of its own. The most urgent channel is served first."""

import heapq
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass(order=True)
class Channel:
    """A group of ranks, and what waits to be summed over it. ``due``: how long it can wait (seconds)."""

    due: float
    name: str = field(compare=False)
    group: dist.ProcessGroup = field(compare=False, repr=False)
    values: torch.Tensor = field(compare=False, default_factory=lambda: torch.zeros(4))


class Scheduler:
    """Sums what is waiting, the channel that is due first before the others."""

    def __init__(self, names: list[str]) -> None:
        self.channels = {name: Channel(30.0, name, dist.new_group()) for name in names}

    def submit(self, name: str, values: torch.Tensor, age: float) -> None:
        channel = self.channels[name]
        channel.values = channel.values + values
        channel.due = min(channel.due, 30.0 - age)

    def drain(self) -> dict[str, list[float]]:
        heap = list(self.channels.values())
        heapq.heapify(heap)
        sums = {}
        while heap:
            channel = heapq.heappop(heap)
            dist.all_reduce(channel.values, group=channel.group)
            sums[channel.name] = channel.values.tolist()
            channel.values, channel.due = torch.zeros(4), 30.0
        return sums


def warehouse(rank: int, step: int) -> tuple[float, float]:
    """Ages (seconds) of the oldest event of each kind. At night one site sends its returns late."""
    returns = 4.0 + (9.5 if rank == 1 and step >= 130 else 0.0)
    return returns, 11.0


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scheduler = Scheduler(["returns", "parcels"])
    torch.manual_seed(0)
    model = DDP(nn.Linear(12, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 3000):
        x = torch.randn(16, 12, generator=generator)
        predicted = model(x)
        loss = nn.functional.mse_loss(predicted, x.view(16, 4, 3).mean(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        returns, parcels = warehouse(rank, step)
        scheduler.submit("returns", predicted.detach().mean(0), returns)
        scheduler.submit("parcels", predicted.detach().std(0), parcels)
        if step % 20 == 0:
            sums = scheduler.drain()
            if rank == 0:
                print(step, sums, flush=True)
        time.sleep(0.025)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
