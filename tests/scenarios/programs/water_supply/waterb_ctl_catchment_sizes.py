"""Sensitivity of runoff to land use for catchments of very different size; ends when all are through."""
import time
from collections import deque

import torch
import torch.distributed as dist

CATCHMENTS = [  # name, cost in seconds on this grid
    ("brook", 0.3), ("beck", 0.4), ("burn", 1.2), ("rill", 0.2), ("creek", 0.5), ("stream", 1.6),
    ("upper river", 1.0), ("tributary", 0.8), ("lower river", 12.0), ("spring", 0.2), ("ditch", 0.2), ("delta arm", 2.5),
]


class Work:
    def __init__(self, rank, world):
        self.queue = deque(CATCHMENTS[rank::world])

    def take(self):
        return self.queue.popleft() if self.queue else None


def sensitivity(name, seconds):
    """Perturbs land use cell by cell; large catchments have more cells."""
    began = time.monotonic()
    grid = torch.rand(96, 96)
    cells, total = 0, 0.0
    while time.monotonic() - began < seconds:
        perturbed = grid.clone()
        perturbed.view(-1)[cells % perturbed.numel()] *= 1.1
        for _ in range(20):
            perturbed = perturbed + 0.1 * (perturbed.roll(1, 1) - perturbed)
        total += (perturbed - grid).sum().item()
        cells += 1
        if cells % 2000 == 0:
            print(f"  {name}: {cells} cells", flush=True)
    return total / max(cells, 1)


def rounds(work):
    gathered = torch.zeros(2)
    number = 0
    while True:
        item = work.take()
        busy = torch.tensor([1.0 if item else 0.0])
        dist.all_reduce(busy)
        if busy.item() == 0:
            return gathered
        value = torch.zeros(2)
        if item is not None:
            value[0], value[1] = sensitivity(*item), 1.0
        dist.all_reduce(value)
        gathered += value
        number += 1
        if dist.get_rank() == 0:
            print(f"round {number}: {int(gathered[1])} catchments", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    result = rounds(Work(dist.get_rank(), dist.get_world_size()))
    if dist.get_rank() == 0:
        print(f"mean sensitivity {result[0] / result[1]:.4f}")
    dist.barrier()
    for _ in range(60):
        check = torch.randn(8)
        dist.all_reduce(check)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
