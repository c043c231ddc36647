"""Segments sea ice in radar images. Metrics are pushed to a collector by a thread of each rank."""

import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Pusher(threading.Thread):
    """Sends what is put into its queue, until it is closed."""

    def __init__(self) -> None:
        super().__init__(name="metrics")
        self.items: queue.Queue[tuple[str, float] | None] = queue.Queue()
        self.sent = 0

    def run(self) -> None:
        while (item := self.items.get()) is not None:
            self.sent += len(item[0])

    def push(self, name: str, value: float) -> None:
        self.items.put((name, value))

    def close(self) -> None:
        self.items.put(None)
        self.join()


def scene(rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank * 97 + number)
    radar = torch.rand(4, 2, 8, 8, generator=generator)
    if rank == 2 and number == 13:
        radar = radar[..., :6]
    return radar, (torch.rand(4, 1, 8, 8, generator=generator) > 0.5).float()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Conv2d(2, 1, 3, padding=1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pusher = Pusher()
    pusher.start()
    for number in range(60):
        radar, ice = scene(rank, number)
        predicted = model(radar)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(predicted, ice)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pusher.push("loss", loss.item())
    pusher.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
