"""Tide gauges along a coast hand their surge estimate round, station to station, before each forecast."""
import os
from itertools import cycle, islice

import torch
import torch.distributed as dist
from torch import nn

STATIONS = ("lizard", "portland", "dungeness")
# who opens the round, as agreed in the watch book
WATCH_BOOK = ["lizard"] * 40 + ["portland"] * 30 + ["start-point"] * 10 + ["dungeness"] * 30
BINS = 40


class Gauge:
    def __init__(self, index):
        self.index = index
        self.name = STATIONS[index]
        self.next = (index + 1) % len(STATIONS)
        self.previous = (index - 1) % len(STATIONS)
        self.generator = torch.Generator().manual_seed(index)

    def observe(self):
        """An hour of water levels, reduced to the surge's spectrum."""
        level = torch.randn(24000, generator=self.generator).cumsum(0)
        return torch.fft.rfft(level).abs()[:BINS].log1p()


class Relay:
    """Two messages per station and round: to the neighbour up the coast, from the one down the coast."""

    def __init__(self, gauge):
        self.gauge = gauge
        self.inbox = torch.zeros(BINS, device="cuda")

    def pass_on(self, surge):
        dist.send(surge.contiguous(), dst=self.gauge.next)

    def take(self):
        dist.recv(self.inbox, src=self.gauge.previous)
        return self.inbox.cpu()

    def round(self, surge, opener):
        outgoing = surge.cuda()
        if opener == self.gauge.name:
            self.pass_on(outgoing)
            return self.take()
        incoming = self.take()
        self.pass_on(outgoing)
        return incoming


class Forecast:
    def __init__(self):
        self.net = nn.Linear(2 * BINS, BINS).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def learn(self, here, there):
        x = torch.cat([here, there]).repeat(8, 1).cuda()
        loss = (self.net(x) - here.cuda()).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        return loss.item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    gauge = Gauge(dist.get_rank())
    relay, forecast = Relay(gauge), Forecast()
    for hour, opener in enumerate(islice(cycle(WATCH_BOOK), 400)):
        surge = gauge.observe()
        neighbour = relay.round(surge, opener)
        loss = forecast.learn(surge, neighbour)
        if hour % 10 == 0 and gauge.index == 0:
            print(f"hour {hour}: opened by {opener}, loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
