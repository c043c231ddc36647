"""Taxi-time surrogate on apron zones in a line: neighbours exchange the queue at their shared taxiway each step."""
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 16
# zone numbers as the tower uses them; renumbered when the west pier opens
LAYOUT = {"before": [0, 1, 2, 3], "west pier": [0, 1, 5, 6]}
OPENING = 45


class Zone(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 * WIDTH, 48), nn.Tanh(), nn.Linear(48, WIDTH))

    def forward(self, left, own, right):
        return self.net(torch.cat([left, own, right]))


class Apron:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.numbers = LAYOUT["before"]

    def swap(self, queue, neighbour):
        """One side of a taxiway gives first, the other takes first, by the zone's number."""
        theirs = torch.empty_like(queue)
        if self.numbers[self.rank] % 2 == 0:
            dist.send(queue, dst=neighbour)
            dist.recv(theirs, src=neighbour)
        else:
            dist.recv(theirs, src=neighbour)
            dist.send(queue, dst=neighbour)
        return theirs

    def neighbours(self, queue):
        left = self.swap(queue, self.rank - 1) if self.rank > 0 else torch.zeros_like(queue)
        right = self.swap(queue, self.rank + 1) if self.rank < self.world - 1 else torch.zeros_like(queue)
        return left, right


def share_gradients(module, world):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    zone, apron = Zone(), Apron()
    optimizer = torch.optim.SGD(zone.parameters(), lr=0.02)
    rng = torch.Generator().manual_seed(20 + apron.rank)
    queue = torch.rand(WIDTH, generator=rng)
    for minute in range(140):
        if minute == OPENING:
            apron.numbers = LAYOUT["west pier"]
        left, right = apron.neighbours(queue)
        arrivals = torch.rand(WIDTH, generator=rng)
        target = 0.5 * queue + 0.2 * (left + right) + 0.1 * arrivals
        loss = nn.functional.mse_loss(zone(left, queue, right), target)
        optimizer.zero_grad()
        loss.backward()
        share_gradients(zone, apron.world)
        optimizer.step()
        queue = target.detach()
        time.sleep(0.04)  # surface radar, one sweep
        if minute % 20 == 0 and apron.rank == 0:
            print(f"minute {minute} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
