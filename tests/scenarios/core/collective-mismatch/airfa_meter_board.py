"""Punctuality classifier with a board of meters that are merged over all stations at the end of a day."""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class SumMeter:
    def __init__(self):
        self.value = torch.zeros(2, dtype=torch.float64)

    def add(self, amount):
        self.value += torch.tensor([amount, 1.0], dtype=torch.float64)

    def merged(self):
        total = self.value.clone()
        dist.all_reduce(total)
        return (total[0] / total[1]).item()


class PeakMeter:
    def __init__(self):
        self.value = torch.zeros(1, dtype=torch.float64)

    def add(self, amount):
        self.value.clamp_(min=amount)

    def merged(self):
        peaks = [torch.zeros_like(self.value) for _ in range(dist.get_world_size())]
        dist.all_gather(peaks, self.value)
        return [round(p.item(), 2) for p in peaks]


KINDS = {"delay": SumMeter, "holding": PeakMeter}


class Board(dict):
    """Meters appear on the board with their first value."""

    def __missing__(self, name):
        self[name] = KINDS[name]()
        return self[name]

    def merged(self):
        return {name: meter.merged() for name, meter in self.items()}


class Station:
    """Arrivals at one airport. A flight is either late at the gate or has been held in the air."""

    def __init__(self, index):
        self.g = torch.Generator().manual_seed(index)
        self.busy = (0.9, 0.1, 0.1)[index]  # share of flights held before landing

    def hour(self, number):
        x = torch.randn(20, 10, generator=self.g)
        y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
        first = "holding" if number % 2 == (0 if self.busy > 0.5 else 1) else "delay"
        time.sleep(0.05)
        return x, y, first, float(torch.rand(1, generator=self.g)) * 30


def day(model, optimizer, station, board, hours):
    for number in range(hours):
        x, y, kind, minutes = station.hour(number)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        board[kind].add(minutes)
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    station = Station(rank)
    for date in ("Monday", "Tuesday"):
        board = Board()
        loss = day(model, optimizer, station, board, hours=60)
        if rank == 0:
            print(f"{date}: loss {loss:.3f}", flush=True)
        report = board.merged()
        if rank == 0:
            print(date, report, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
