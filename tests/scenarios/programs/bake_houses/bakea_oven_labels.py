"""Train the oven-exit classifier; every rank ships its oven's readings to the plant historian meanwhile."""
import collections
import logging
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="[%(process)d] %(message)s")
logger = logging.getLogger(__name__)

SKU_CLASS = {"baguette": 0, "ciabatta": 1, "pretzel": 2, "brioche": 3, "rye-1kg": 4}
PLAN = [
    ["baguette", "ciabatta", "baguette", "pretzel"],
    ["brioche", "rye-1kg", "brioche", "baguette"],
    ["pretzel", "ciabatta", "rye-1kg", "brioche"],
]
CHANGEOVER = {2: (45, "rye-750g")}  # oven -> (batch number, product) from the planning sheet


class HistorianLink(threading.Thread):
    """Collects readings and writes them in bundles."""

    def __init__(self, oven, period=0.5):
        super().__init__(name=f"historian-{oven}")
        self.oven, self.period = oven, period
        self.readings = collections.deque()
        self.sent = 0
        self._closing = threading.Event()
        self.start()

    def record(self, value):
        self.readings.append((time.time(), value))

    def run(self):
        while not self._closing.wait(self.period):
            while self.readings:
                self.readings.popleft()
                self.sent += 1

    def close(self):
        self._closing.set()
        self.join()


class OvenStream:
    def __init__(self, oven, batches=160):
        self.oven, self.batches = oven, batches
        self.gen = torch.Generator().manual_seed(oven)

    def product(self, number):
        start, name = CHANGEOVER.get(self.oven, (self.batches, ""))
        return name if number >= start else PLAN[self.oven][number // 5 % 4]

    def __iter__(self):
        for number in range(self.batches):
            time.sleep(0.05)
            yield number, self.product(number), torch.randn(12, 20, generator=self.gen)


def train(oven, link):
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.SiLU(), nn.Linear(32, len(SKU_CLASS))))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number, product, frames in OvenStream(oven):
        target = torch.full((len(frames),), SKU_CLASS[product])
        loss = nn.functional.cross_entropy(model(frames), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        link.record(float(loss))
        if number % 20 == 0:
            logger.info("oven %d batch %d loss %.3f", oven, number, loss.item())


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    oven = int(os.environ["RANK"])
    link = HistorianLink(oven)
    train(oven, link)
    link.close()
    logger.info("oven %d: %d readings sent", oven, link.sent)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
