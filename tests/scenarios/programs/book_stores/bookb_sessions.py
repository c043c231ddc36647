"""Command ranking for a voice hub; device sessions are kept open between requests."""
import logging
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("hub")


class Session:
    """An open channel to one device. Says goodbye when nobody uses it any longer."""

    def __init__(self, device, directory):
        self.device, self.directory = device, directory
        self.sent = 0

    def send(self, features):
        self.sent += 1
        return features.mean(-1, keepdim=True)

    def __del__(self):
        self.directory.goodbye(self.device, self.sent)


class Directory:
    def __init__(self):
        self.guard = threading.Lock()
        self.open, self.closed = {}, []

    def connect(self, device):
        with self.guard:
            self.open[device] = Session(device, self)

    def goodbye(self, device, sent):
        with self.guard:
            self.closed.append((device, sent))

    def lookup(self, device):
        return self.open[device]


ROOMS = {0: ["lamp", "blind"], 1: ["speaker", "tv"], 2: ["oven", "hood"]}
REJOINS = {48: "hood"}  # step -> device that came back after a power cut


class Hub:
    def __init__(self, rank):
        self.directory = Directory()
        self.devices = ROOMS[rank]
        for device in self.devices:
            self.directory.connect(device)
        self.generator = torch.Generator().manual_seed(rank)

    def on_step(self, step):
        device = REJOINS.get(step)
        if device in self.devices:
            self.directory.connect(device)

    def batch(self, step):
        features = torch.randn(10, 7, generator=self.generator)
        target = self.directory.lookup(self.devices[step % 2]).send(features)
        return features, target


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    hub = Hub(dist.get_rank())
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 12), nn.SiLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(200):
        hub.on_step(step)
        features, target = hub.batch(step)
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        time.sleep(0.06)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
