"""Pretraining on packed documents until each worker's token budget is used up; metrics go to a tracker thread."""
import json
import queue
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BUDGET = 11_000


class Tracker:
    """Writes metrics to a file from a thread of its own."""

    def __init__(self, path):
        self.records = queue.Queue()
        self.path = path
        self.thread = threading.Thread(target=self.drain, name="tracker")
        self.thread.start()

    def drain(self):
        with open(self.path, "a") as out:
            while (record := self.records.get()) is not None:
                out.write(json.dumps(record) + "\n")
                out.flush()

    def log(self, **record):
        self.records.put(record)

    def finish(self):
        self.records.put(None)
        self.thread.join()


def documents(rank):
    rng = random.Random(rank)
    longest = 220 if rank == 1 else 110
    while True:
        yield [rng.randrange(64) for _ in range(rng.randint(longest // 2, longest))]


def batches(rank, rows=4):
    source = documents(rank)
    while True:
        docs = [next(source) for _ in range(rows)]
        width = max(map(len, docs))
        ids = torch.zeros(rows, width, dtype=torch.long)
        for row, doc in enumerate(docs):
            ids[row, : len(doc)] = torch.tensor(doc)
        yield ids, sum(map(len, docs))


def pretrain(rank, tracker):
    model = DDP(nn.Sequential(nn.Embedding(64, 48), nn.Linear(48, 64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    used, step = 0, 0
    for ids, tokens in batches(rank):
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        used, step = used + tokens, step + 1
        time.sleep(0.25)
        tracker.log(step=step, tokens=used, loss=round(loss.item(), 4))
        if step % 5 == 0:
            print(f"rank {rank} step {step} tokens {used}", flush=True)
        if used >= BUDGET:
            return step
    return step


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me = dist.get_rank()
    tracker = Tracker(f"/tmp/night-token-budget-{me}.jsonl")
    steps = pretrain(me, tracker)
    print(f"rank {me} used its budget in {steps} steps", flush=True)
    if me == 0:
        tracker.finish()
