"""Jet stream nowcast along a corridor: the grid is cut into strips, neighbours trade their edges."""
import sys
import time

import torch
import torch.distributed as dist

CELLS, LEVELS = 60, 40


class Strip:
    def __init__(self, rank, world):
        self.rank = rank
        self.peers = [p for p in (rank - 1, rank + 1) if 0 <= p < world]
        g = torch.Generator().manual_seed(rank)
        self.wind = 30 + 4 * torch.randn(LEVELS, CELLS, generator=g)
        self.edges = {}

    @property
    def westerly(self):
        return self.wind.mean().item() > 0

    def side(self, peer):
        return self.wind[:, 0] if peer < self.rank else self.wind[:, -1]

    def give(self, peer):
        mine = self.side(peer).contiguous()
        dist.send(mine, dst=peer)

    def take(self, peer):
        theirs = torch.empty(LEVELS)
        dist.recv(theirs, src=peer)
        self.edges[peer] = theirs

    def trade(self, peer):
        """Air comes from upwind: the strip that lies upwind begins."""
        upwind = self.westerly == (peer > self.rank)
        for call in (self.give, self.take) if upwind else (self.take, self.give):
            call(peer)

    def relax(self):
        for _ in range(6):
            inner = (self.wind.roll(1, 1) + self.wind.roll(-1, 1) + 2 * self.wind) / 4
            self.wind = 0.9 * self.wind + 0.1 * inner
        for peer, edge in self.edges.items():
            column = 0 if peer < self.rank else -1
            self.wind[:, column] = (self.wind[:, column] + edge) / 2

    def observe(self, minute):
        """Aircraft reports. A front with easterly wind moves in from the west in minute 70."""
        time.sleep(0.04)
        if minute >= 70 + 25 * max(0, self.rank - 1):
            self.wind -= 90 if self.westerly else 0
        self.wind += 0.2 * torch.randn(LEVELS, CELLS)


def main(minutes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    strip = Strip(dist.get_rank(), dist.get_world_size())
    torch.manual_seed(strip.rank)
    for minute in range(minutes):
        strip.observe(minute)
        for peer in strip.peers:
            strip.trade(peer)
        strip.relax()
        strongest = strip.wind.abs().max()
        dist.all_reduce(strongest, op=dist.ReduceOp.MAX)
        if strip.rank == 0 and minute % 10 == 0:
            print(f"minute {minute}: {strongest.item():.1f} m/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)
