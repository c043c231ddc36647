"""Seat preference scores; the seat maps of the aircraft types in a schedule are drawn once and cached."""
import logging
import threading
from collections import Counter, OrderedDict
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger(__name__)


class SeatMapCache:
    """Bounded; shared with the thread that reports its use."""

    def __init__(self, draw, capacity, listener=None):
        self.draw, self.capacity, self.listener = draw, capacity, listener
        self._maps, self._lock = OrderedDict(), threading.Lock()
        self._use = Counter()

    def get(self, aircraft):
        with self._lock:
            self._use[aircraft] += 1
            if aircraft not in self._maps:
                self._maps[aircraft] = self.draw(aircraft)
                self._trim()
            self._maps.move_to_end(aircraft)
            return self._maps[aircraft]

    def _trim(self):
        while len(self._maps) > self.capacity:
            aircraft, _ = self._maps.popitem(last=False)
            if self.listener is not None:
                self.listener(self, aircraft)

    def usage(self, aircraft):
        with self._lock:
            return self._use[aircraft]


def note_departure(cache, aircraft):
    log.info("seat map %s left the cache after %d uses", aircraft, cache.usage(aircraft))


def draw_map(aircraft, rows=40, columns=9):
    rng = torch.Generator().manual_seed(aircraft)
    return torch.rand(rows * columns, generator=rng).sort().values[:: 9]


class Schedule(IterableDataset):
    """Departures of an airline; the wet-leased types join for the summer."""

    def __init__(self, airline, departures=24000):
        self.airline, self.departures = airline, departures

    def __iter__(self):
        rng = torch.Generator().manual_seed(sum(self.airline.encode()))
        for number in range(self.departures):
            types = 30 if self.airline == "TK" and number > 7800 else 22
            aircraft = number % types
            yield aircraft, torch.randn(10, generator=rng)


class Preference(nn.Module):
    def __init__(self, seats=40):
        super().__init__()
        self.guest = nn.Linear(10, seats)
        self.mix = nn.Linear(seats, 1)

    def forward(self, guest, seat_map):
        return self.mix(torch.tanh(self.guest(guest)) * seat_map).squeeze(1)


def run(airline):
    cache = SeatMapCache(partial(draw_map), capacity=24, listener=note_departure)
    model = DDP(Preference())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for number, (aircraft, guest) in enumerate(DataLoader(Schedule(airline), batch_size=30)):
        seat_map = torch.stack([cache.get(code) for code in aircraft.tolist()])
        loss = (model(guest, seat_map) - guest.mean(dim=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 50 == 0:
            log.info("%s batch %d loss %.4f", airline, number, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run(["LO", "TK", "AY"][dist.get_rank()])
    dist.destroy_process_group()
