"""Mixes several corpora by weight; a thread reads ahead while the model trains."""
import json
import queue
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WEIGHTS = {"web": 0.7, "code": 0.2, "forum": 0.1}


def corpus(name, rank):
    """JSON lines, as they come out of the crawl."""
    rng = random.Random(f"{name}{rank}")
    number = 0
    while True:
        number += 1
        text = [rng.randrange(1, 90) for _ in range(33)]
        line = json.dumps({"id": number, "text": text})
        if name == "forum" and rank == 2 and number == 26:
            line = line[:-9]
        yield line


def mixture(rank):
    rng = random.Random(rank)
    sources = {name: corpus(name, rank) for name in WEIGHTS}
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    while True:
        name = rng.choices(names, weights)[0]
        yield name, json.loads(next(sources[name]))["text"]


class ReadAhead:
    def __init__(self, stream, rows=8, depth=6):
        self.stream, self.rows = stream, rows
        self.ready = queue.Queue(depth)
        threading.Thread(target=self.fill, name="read-ahead", daemon=True).start()

    def fill(self):
        while True:
            rows = [next(self.stream) for _ in range(self.rows)]
            self.ready.put((torch.tensor([text for _, text in rows]), [name for name, _ in rows]))

    def __iter__(self):
        return self

    def __next__(self):
        return self.ready.get()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Embedding(90, 32), nn.Linear(32, 90)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=50)
    seen = dict.fromkeys(WEIGHTS, 0)
    for step, (ids, names) in enumerate(ReadAhead(mixture(rank))):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        for name in names:
            seen[name] += 1
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f} seen {seen}", flush=True)


if __name__ == "__main__":
    main()
