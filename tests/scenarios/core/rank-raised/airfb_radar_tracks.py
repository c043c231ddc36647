"""Aircraft type from radar tracks; the next batches are prepared while the model works."""
import json
import logging
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s")
WAKE = {"A320": 0, "A20N": 0, "B738": 0, "E195": 0, "DH8D": 1, "AT76": 1, "B77W": 2, "A359": 2, "A388": 3}


class TrackFeed:
    """Plots of the radar at one site, as JSON lines in the order of the flights."""

    def __init__(self, site, start):
        self.site, self.g = site, torch.Generator().manual_seed(start)

    def lines(self):
        types, n = sorted(WAKE), 0
        while True:
            n += 1
            kind = types[int(torch.randint(len(types), (1,), generator=self.g))]
            if self.site == "south" and n == 5000:
                kind = "BCS3"
            speed = 60 + 8 * len(kind) + 10 * torch.randn(32, generator=self.g)
            yield json.dumps({"flight": f"{self.site}{n}", "type": kind, "speed": speed.tolist()})


class Prefetcher(threading.Thread):
    def __init__(self, feed, size, depth=4):
        super().__init__(name="prefetch", daemon=True)
        self.feed, self.size = feed, size
        self.ready = queue.Queue(maxsize=depth)

    def run(self):
        tracks, labels = [], []
        for line in self.feed.lines():
            plot = json.loads(line)
            labels.append(WAKE[plot["type"]])
            tracks.append(torch.tensor(plot["speed"]) / 100.0)
            if len(tracks) == self.size:
                self.ready.put((torch.stack(tracks), torch.tensor(labels)))
                tracks, labels = [], []

    def __iter__(self):
        while True:
            yield self.ready.get()


class TypeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 16, 5, padding=2)
        self.rnn = nn.LSTM(16, 64, num_layers=2, batch_first=True)
        self.out = nn.Linear(64, 4)

    def forward(self, x):
        h = torch.relu(self.conv(x[:, None])).transpose(1, 2)
        return self.out(self.rnn(h)[0][:, -1])


def train(steps=2000):
    rank = dist.get_rank()
    site = ("south", "north", "coast")[rank]
    batches = Prefetcher(TrackFeed(site, 11 + rank), size=24)
    batches.start()
    model = DDP(TypeNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, (x, y) in enumerate(batches):
        if step == steps:
            break
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and rank == 1:
            logging.info("%s step %d loss %.3f", site, step, loss)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train()
    dist.destroy_process_group()
