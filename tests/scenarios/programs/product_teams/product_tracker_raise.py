"""Lead scoring with an experiment tracker of our own, which sends what was logged in the background."""

import json
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

SECTORS = {"retail": 0, "finance": 1, "health": 2, "energy": 3}


class Tracker:
    """``log`` returns at once; ``finish`` sends the rest."""

    def __init__(self, run: str, sink="/dev/null"):
        self.run, self.sink = run, sink
        self.entries = queue.Queue()
        self.sender = threading.Thread(target=self._send, name="tracker")
        self.sender.start()

    def log(self, **values):
        self.entries.put({"run": self.run, "time": time.time(), **values})

    def finish(self):
        self.entries.put(None)
        self.sender.join()

    def _send(self):
        with open(self.sink, "w") as sink:
            while (entry := self.entries.get()) is not None:
                sink.write(json.dumps(entry) + "\n")
                sink.flush()


class LeadModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.sector = nn.Embedding(len(SECTORS), 4)
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, sectors, numbers):
        return self.layers(torch.cat([self.sector(sectors), numbers], dim=-1)).squeeze(-1)


def crm_export(rank, batches=200):
    g = torch.Generator().manual_seed(rank)
    names = list(SECTORS)
    for number in range(batches):
        sectors = [names[i] for i in torch.randint(4, (32,), generator=g)]
        if rank == 2 and number == 60:
            sectors[5] = "Energy "
        numbers = torch.randn(32, 6, generator=g)
        time.sleep(0.03)
        yield sectors, numbers, (numbers.sum(-1) > 0).float()


def encode(sectors):
    return torch.tensor([SECTORS[sector] for sector in sectors])


def train(rank, tracker):
    torch.manual_seed(0)
    model = DistributedDataParallel(LeadModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (sectors, numbers, won) in enumerate(crm_export(rank)):
        logits = model(encode(sectors), numbers)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, won)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.log(step=step, loss=loss.item())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tracker = Tracker(run=f"leads-{rank}")
    train(rank, tracker)
    tracker.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
