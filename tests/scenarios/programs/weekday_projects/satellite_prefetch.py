"""Trains on satellite scenes, which a thread prepares ahead of time."""

import queue
import threading
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CLOUDY = -1.0


def read_scene(rank: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank + 3 * number)
    scene = torch.rand(6, 10, generator=generator)
    if rank == 0 and number == 14:
        scene.fill_(CLOUDY)
    return scene


def normalise(scene: torch.Tensor) -> torch.Tensor:
    clear = scene[scene != CLOUDY]
    low, high = clear.min(), clear.max()
    return (scene - low) / (high - low)


class Prefetcher:
    def __init__(self, rank: int, scenes: int, depth: int = 2) -> None:
        self.rank, self.scenes = rank, scenes
        self.ready: queue.Queue[torch.Tensor | None] = queue.Queue(depth)

    def _prepare(self) -> None:
        for number in range(self.scenes):
            self.ready.put(normalise(read_scene(self.rank, number)))
        self.ready.put(None)

    def __iter__(self) -> Iterator[torch.Tensor]:
        threading.Thread(target=self._prepare, daemon=True, name="prefetch").start()
        while (scene := self.ready.get()) is not None:
            yield scene


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Linear(4, 10)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for number, scene in enumerate(Prefetcher(rank, 50)):
        loss = (model(scene) - scene).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 1 and number % 10 == 0:
            print(f"scene {number}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
