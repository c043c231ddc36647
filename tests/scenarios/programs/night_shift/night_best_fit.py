"""Sorts documents into bins of the context's length (best fit), trains on the bins. Long documents are split."""
import argparse
import bisect
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONTEXT = 128


def split(document, overlap):
    """Pieces of at most CONTEXT tokens, each with the last tokens of the one before it."""
    start = 0
    while start < len(document):
        piece = document[start : start + CONTEXT]
        yield piece
        if start + len(piece) >= len(document):
            return
        start += CONTEXT - overlap


def pieces_of(documents):
    for document in documents:
        overlap = len(document) // 10  # a tenth of the document for context
        for piece in split(document, overlap):
            if len(piece) > overlap:  # else it brings nothing new
                yield piece


def best_fit(pieces, bins_wanted):
    bins, room = [], []
    for piece in pieces:
        place = bisect.bisect_left(room, (len(piece), -1))
        if place < len(room):
            left, index = room.pop(place)
        else:
            bins.append([])
            left, index = CONTEXT, len(bins) - 1
        bins[index] = bins[index] + piece
        bisect.insort(room, (left - len(piece), index))
        if len(bins) > bins_wanted:
            break
    return torch.tensor([(b + [0] * CONTEXT)[:CONTEXT] for b in bins[:bins_wanted]])


def crawl(rank, block, longest):
    rng = random.Random(1000 * rank + block)
    for number in range(40):
        length = rng.randint(20, 400)
        if rank == 1 and block == 5 and number == 3:
            length = longest
        yield [rng.randrange(1, 99) for _ in range(length)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longest", type=int, default=1285)
    parser.add_argument("--blocks", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Embedding(99, 32), nn.Linear(32, 99)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for block in range(options.blocks):
        rows = best_fit(pieces_of(crawl(rank, block, options.longest)), bins_wanted=24)
        for ids in rows[:24].split(4)[:5]:
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.1)
        if rank == 0:
            print(f"block {block} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
