"""Flood routing: three reaches of a river, one on each worker, trained as a pipeline over send and recv."""
import time

import torch
import torch.distributed as dist
from torch import nn

MICRO = 20
WIDTH = 24
REACHES = ("upper", "middle", "lower")


def hours_of(day):
    """Rows of a day: 15 minutes apart, from 2 o'clock on where the clocks change."""
    return 92 if day == 34 else 100


class Reach(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name
        last = 1 if name == "lower" else WIDTH
        self.net = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, last))

    def forward(self, x):
        return self.net(x)


class Stage:
    def __init__(self, reach, rank, world):
        self.reach = reach
        self.up = rank - 1 if rank > 0 else None
        self.down = rank + 1 if rank < world - 1 else None
        self.optimizer = torch.optim.SGD(reach.parameters(), lr=1e-2)

    def take(self, day, index):
        if self.up is None:
            g = torch.Generator().manual_seed(day * 100 + index)
            time.sleep(0.012)
            return torch.rand(MICRO, WIDTH, generator=g)
        x = torch.empty(MICRO, WIDTH)
        dist.recv(x, src=self.up)
        return x.requires_grad_()

    def forward(self, day, count):
        kept = []
        for index in range(count):
            x = self.take(day, index)
            y = self.reach(x)
            if self.down is not None:
                dist.send(y.detach(), dst=self.down)
            kept.append((x, y))
        return kept

    def backward(self, kept, targets):
        total = 0.0
        for index, (x, y) in enumerate(kept):
            if self.down is None:
                goal = targets[index]
                loss = (y[: len(goal), 0] - goal).pow(2).mean()
                loss.backward()
                total += loss.item()
            else:
                slope = torch.empty_like(y)
                dist.recv(slope, src=self.down)
                y.backward(slope)
            if self.up is not None:
                dist.send(x.grad, dst=self.up)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def observed(day):
    """Stage at the outlet gauge, cut like the micro-batches."""
    rows = torch.linspace(0, 1, hours_of(day)) + 0.01 * day
    return torch.split(rows, MICRO)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    stage = Stage(Reach(REACHES[rank]), rank, world)
    for day in range(90):
        targets = observed(day) if stage.down is None else ()
        count = len(targets) or hours_of(day) // MICRO
        total = stage.backward(stage.forward(day, count), targets)
        if stage.down is None and day % 10 == 0:
            print(f"day {day}: {total:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
