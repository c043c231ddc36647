"""Matrix factorization for a recommender of papers, with a thread-safe recorder of metrics on the first rank."""

import json
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
READERS, PAPERS, FACTORS = 200, 300, 8


class Recorder:
    """Buffers rows, and writes them as JSON lines. May be used from several threads."""

    def __init__(self, path, capacity=180):
        self.path, self.capacity = path, capacity
        self.rows, self.listeners = [], []
        self._lock = threading.Lock()

    def on_flush(self, listener):
        self.listeners.append(listener)
        return listener

    def record(self, **row):
        with self._lock:
            self.rows.append(row)
            if len(self.rows) >= self.capacity:
                self._flush()

    def _flush(self):
        start = time.perf_counter()
        with open(self.path, "a") as file:
            for row in self.rows:
                file.write(json.dumps(row) + "\n")
        count = len(self.rows)
        self.rows.clear()
        for listener in self.listeners:
            listener(self, count, time.perf_counter() - start)


class NoRecorder:
    def record(self, **row):
        pass

    def on_flush(self, listener):
        return listener


def make_recorder(rank):
    if rank != 0:
        return NoRecorder()
    recorder = Recorder(os.path.join(tempfile.mkdtemp(), "metrics.jsonl"))

    @recorder.on_flush
    def measure(recorder, count, seconds):
        print(f"{count} rows written", flush=True)
        recorder.record(name="recorder/rows_per_second", value=count / max(seconds, 1e-6))

    return recorder


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.Embedding(READERS, FACTORS)
        self.paper = nn.Embedding(PAPERS, FACTORS)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, reader, paper):
        return (self.reader(reader) * self.paper(paper)).sum(-1) + self.bias


def clicks(rank, n=64):
    generator = torch.Generator().manual_seed(rank)
    while True:
        reader = torch.randint(READERS, (n,), generator=generator)
        paper = torch.randint(PAPERS, (n,), generator=generator)
        time.sleep(0.03)
        yield reader, paper, ((reader + paper) % 3 == 0).float()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, recorder = Factors(), make_recorder(rank)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step, (reader, paper, clicked) in zip(range(3000), clicks(rank)):
        loss = nn.functional.binary_cross_entropy_with_logits(model(reader, paper), clicked)
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        recorder.record(name="loss", step=step, value=loss.item())
        recorder.record(name="bias", step=step, value=model.bias.item())
        recorder.record(name="norm/papers", step=step, value=model.paper.weight.norm().item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
