"""Learns to mark personal data in judgments (names, addresses, file numbers); samples are uploaded for review."""
import queue
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TAGS = {"O": 0, "NAME": 1, "ADDRESS": 2, "FILE_NO": 3, "BIRTH_DATE": 4}


class ReviewUpload(threading.Thread):
    """Sends marked passages to the review desk, in the order in which they come."""

    def __init__(self):
        super().__init__(name="review-upload")
        self.box = queue.Queue()
        self.sent = 0

    def run(self):
        while True:
            passage = self.box.get()
            if passage is None:
                break
            time.sleep(0.005)
            self.sent += 1

    def close(self):
        self.box.put(None)
        self.join()


def judgments(chamber, step):
    rng = random.Random(1000 * chamber + step)
    names = list(TAGS)
    if chamber == 2 and step >= 70:
        names = names + ["IBAN"]  # annotated since the new guideline of 2025
    return [[(rng.randrange(500), rng.choice(names)) for _ in range(30)] for _ in range(12)]


def encode(batch):
    words = torch.tensor([[w for w, _ in row] for row in batch])
    tags = torch.tensor([[TAGS[t] for _, t in row] for row in batch])
    return words, tags


def marker():
    return nn.Sequential(nn.Embedding(500, 40), nn.Linear(40, 80), nn.Tanh(), nn.Linear(80, len(TAGS)))


def run(steps=300):
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = DDP(marker())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    upload = ReviewUpload()
    upload.start()
    for step in range(steps):
        words, tags = encode(judgments(rank, step))
        logits = model(words)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            upload.box.put(logits.argmax(-1)[0].tolist())
        if step % 25 == 0 and rank == 0:
            print(f"{step:4d} {loss.item():.4f}", flush=True)
        time.sleep(0.02)  # the annotation service gives fifty passages a second
    upload.close()
    print(f"chamber {rank}: {upload.sent} passages for review", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
