"""Night shift of the field stations: trains on what the camera traps bring in, as long as the generator runs."""
import logging
import os
import queue
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("station")
FUEL_SECONDS = {"marsh": 7200, "dunes": 5, "forest": 7200}
STATIONS = list(FUEL_SECONDS)


class Uplink(threading.Thread):
    """Sends the summaries to headquarters over the satellite phone."""

    def __init__(self):
        super().__init__(name="uplink")
        self.outbox = queue.Queue()
        self.sent = 0

    def run(self):
        while True:
            summary = self.outbox.get()
            time.sleep(0.02 + len(summary) / 20_000)
            self.sent += 1


class Shift:
    def __init__(self, seconds):
        self.over = False
        signal.signal(signal.SIGALRM, self.low_fuel)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def low_fuel(self, number, frame):
        self.over = True


class Station:
    def __init__(self, rank):
        self.name = STATIONS[rank]
        self.generator = torch.Generator().manual_seed(60 + rank)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 32), nn.Tanh(), nn.Linear(32, 4))
        for parameter in self.net.parameters():
            dist.broadcast(parameter.data, src=0)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.uplink = Uplink()

    def pictures(self):
        time.sleep(0.05)
        kinds = torch.randint(0, 4, (16,), generator=self.generator)
        return torch.randn(16, 3, 24, 24, generator=self.generator) + kinds[:, None, None, None] * 0.2, kinds

    def average_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in self.net.parameters():
            p.grad.copy_(flat[offset: offset + p.numel()].view_as(p))
            offset += p.numel()

    def work(self, shift):
        self.uplink.start()
        pictures = 0
        while not shift.over:
            x, y = self.pictures()
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.average_gradients()
            self.optimizer.step()
            pictures += len(x)
            if pictures % 320 == 0:
                self.uplink.outbox.put(f"{self.name}: {pictures} pictures, loss {loss.item():.3f}")
                log.info("%s: %d pictures, loss %.3f", self.name, pictures, loss.item())
        log.info("%s: %d pictures in this shift", self.name, pictures)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(2)
    dist.init_process_group("gloo")
    station = Station(int(os.environ["RANK"]))
    station.work(Shift(FUEL_SECONDS[station.name]))


if __name__ == "__main__":
    main()
