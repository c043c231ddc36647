"""Trains with callbacks. A tracker sends records from a thread of its own; training stops when the validation loss stalls."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tracker:
    def __init__(self, project):
        self.project, self.records, self.sent = project, queue.Queue(), 0
        self.thread = threading.Thread(target=self._send, name="tracker")
        self.thread.start()

    def _send(self):
        while (record := self.records.get()) is not None:
            time.sleep(0.01)
            self.sent += 1

    def log(self, **record):
        self.records.put(record)

    def finish(self):
        self.records.put(None)


class EarlyStopping:
    def __init__(self, patience, minimum=1e-4):
        self.patience, self.minimum, self.best, self.bad = patience, minimum, float("inf"), 0

    def on_validation_end(self, trainer, value):
        if value < self.best - self.minimum:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        trainer.should_stop = self.bad >= self.patience


class Trainer:
    def __init__(self, rank, stopping, tracker):
        self.rank, self.stopping, self.tracker, self.should_stop = rank, stopping, tracker, False
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def validate(self, x, y):
        with torch.no_grad():
            return (self.model.module(x) - y).square().mean().item()

    def fit(self, train, validation, epochs):
        for epoch in range(epochs):
            for x, y in zip(train[0].split(32), train[1].split(32)):
                loss = (self.model(x) - y).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(0.05)
            value = self.validate(*validation)
            self.tracker.log(epoch=epoch, validation=value)
            self.stopping.on_validation_end(self, value)
            if self.should_stop:
                return


def make_data(rank):
    generator = torch.Generator().manual_seed(rank)
    x, v = torch.randn(128, 10, generator=generator), torch.randn(64, 10, generator=generator)
    noise = 3.0 if rank == 2 else 0.0  # the third site's validation labels come from volunteers
    return (x, x.sum(1, keepdim=True)), (v, v.sum(1, keepdim=True) * (1 - noise / 2))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tracker = Tracker("sites")
    trainer = Trainer(rank, EarlyStopping(patience=4), tracker)
    trainer.fit(*make_data(rank), epochs=60)
    print(f"rank {rank}: done, best {trainer.stopping.best:.4f}", flush=True)


if __name__ == "__main__":
    main()
