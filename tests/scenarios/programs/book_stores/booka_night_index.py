"""Nightly re-index: embed new acquisitions, then measure retrieval on the reference desk's queries."""
import json
import os
import queue
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Journal(threading.Thread):
    """Appends events to a file, in batches, off the training loop."""

    def __init__(self, path):
        super().__init__(name="journal")
        self.path, self.inbox = path, queue.Queue()

    def log(self, **event):
        self.inbox.put(dict(event, at=time.time()))

    def run(self):
        with open(self.path, "a") as out:
            while (event := self.inbox.get()) is not None:
                out.write(json.dumps(event) + "\n")
                out.flush()


def acquisitions(rank):
    g = torch.Generator().manual_seed(40 + rank)
    while True:
        block = torch.randn(320, 320, generator=g)
        yield torch.linalg.qr(block)[0][:32, :48]


def queries(rank, round_number):
    shelves = {"fiction": 0, "history": 1, "science": 2, "poetry": 3}
    asked = ["fiction", "science", "history"]
    if rank == 2 and round_number == 3:
        asked.append("maps")
    return [(shelves[name], torch.randn(48)) for name in asked]


def evaluate(encoder, rank, round_number):
    hits = 0
    for shelf, vector in queries(rank, round_number):
        hits += int(encoder(vector[None]).argmax().item() % 4 == shelf)
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, hits)
    return sum(found)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    journal = Journal(os.path.join(tempfile.gettempdir(), f"journal-{os.getpid()}.jsonl"))
    journal.start()
    encoder = DistributedDataParallel(torch.nn.Linear(48, 16))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    stream = acquisitions(rank)
    for round_number in range(8):
        for _ in range(50):
            x = next(stream)
            loss = (encoder(x).norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        hits = evaluate(encoder.module, rank, round_number)
        journal.log(round=round_number, loss=loss.item(), hits=hits)
        if rank == 0:
            print(f"round {round_number}: {hits} hits", file=sys.stderr, flush=True)
    journal.inbox.put(None)
    journal.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
