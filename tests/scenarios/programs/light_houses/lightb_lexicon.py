"""Cue-sheet vocabulary first (main process, from the archive's prompt books), then a small bag-of-words model on every rank."""
import collections
import json
import os
import random
import tempfile
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
PATH = os.path.join(tempfile.gettempdir(), f"lexicon-{os.environ.get('MASTER_PORT', '0')}.json")


@contextmanager
def main_process_first():
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    yield rank == 0
    if rank == 0:
        dist.barrier()


def prompt_book(number):
    """One page of a prompt book: what the stage manager calls."""
    pen = random.Random(number)
    words = ["stand", "by", "LX", "go", "fly", "sound", "tabs", "house", "half", "out"]
    return [f"{pen.choice(words)}{pen.randrange(400) if pen.random() < 0.3 else ''}" for _ in range(20_000)]


def build(books=56, interval=0.25):
    """The archive hands out four books a second."""
    counts = collections.Counter()
    for number in range(books):
        begin = time.monotonic()
        counts.update(prompt_book(number))
        if number % 8 == 0:
            print(f"lexicon: {number}/{books} books, {len(counts)} words", flush=True)
        time.sleep(max(0.0, interval - (time.monotonic() - begin)))
    with open(PATH, "w") as file:
        json.dump([word for word, _ in counts.most_common(200)], file)


def main():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    with main_process_first() as first:
        if first:
            build()
        with open(PATH) as file:
            index = {word: n for n, word in enumerate(json.load(file))}
    model = DistributedDataParallel(nn.Linear(len(index), 2).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(60):
        page = prompt_book(1000 + step * dist.get_world_size() + dist.get_rank())[:2000]
        bag = torch.zeros(1, len(index))
        for word in page:
            if word in index:
                bag[0, index[word]] += 1 / len(page)
        loss = model(bag.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"rank {dist.get_rank()} step {step} {loss.item():.3f}", flush=True)
    dist.barrier()
    if dist.get_rank() == 0:
        os.remove(PATH)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
