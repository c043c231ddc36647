"""A drafter for speculative decoding: it learns to continue blocks of tokens from anchors inside each document."""

import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("drafter")
BLOCK, VOCABULARY = 6, 50


class NoAnchors(ValueError):
    """All documents of this micro-batch are shorter than a block."""


class Documents:
    """Twenty micro-batches an epoch; a few of them are chats of two words."""

    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.short = {(1, 13)} if rank == 1 else set()

    def epoch(self, number):
        for index in range(20):
            length = 3 if (number, index) in self.short else 24
            yield torch.randint(0, VOCABULARY, (4, length), generator=self.generator)


class Drafter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 24)
        self.out = nn.Linear(24, VOCABULARY)

    def forward(self, anchors):
        return self.out(torch.tanh(self.embed(anchors)))


def blocks_of(tokens):
    last = tokens.shape[1] - BLOCK
    if last <= 0:
        raise NoAnchors(f"{tokens.shape[1]} tokens")
    starts = torch.arange(0, last, 3)
    return tokens[:, starts].reshape(-1), tokens[:, starts + 1].reshape(-1)


def run_epoch(number, model, optimizer, documents):
    seen = 0
    for tokens in documents.epoch(number):
        time.sleep(0.08)
        try:
            anchors, targets = blocks_of(tokens)
        except NoAnchors as reason:
            log.warning("micro-batch left out: %s", reason)
            continue
        loss = nn.functional.cross_entropy(model(anchors), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(targets)
    return seen


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Drafter())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    documents = Documents(rank)
    for number in range(6):
        seen = run_epoch(number, model, optimizer, documents)
        counts = [None] * dist.get_world_size()
        dist.all_gather_object(counts, seen)
        if rank == 0:
            log.info("epoch %d: %s anchors", number, counts)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
