"""Triage of emergency calls: transcripts are cut into anchored blocks, each block predicts its priority."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logger = logging.getLogger("triage")
BLOCK = 8


class NoAnchors(ValueError):
    """Every transcript of the batch is shorter than one block."""


class Transcripts:
    """Calls of one dispatch centre, as token ids; some are silent calls."""

    def __init__(self, centre, batches=160, size=12):
        self.generator = torch.Generator().manual_seed(centre * 7 + 1)
        self.silent = {1: {93}}.get(centre, set())
        self.batches, self.size = batches, size

    def __len__(self):
        return self.batches

    def __iter__(self):
        for index in range(self.batches):
            low, high = (2, BLOCK) if index in self.silent else (20, 60)
            lengths = torch.randint(low, high, (self.size,), generator=self.generator)
            yield [torch.randint(1, 400, (int(n),), generator=self.generator) for n in lengths]


def anchor_blocks(transcripts):
    blocks = [t[i:i + BLOCK] for t in transcripts for i in range(0, len(t) - BLOCK + 1, BLOCK)]
    if not blocks:
        raise NoAnchors(f"{len(transcripts)} transcripts, none of {BLOCK} tokens")
    return torch.stack(blocks)


class Triage(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(400, 32)
        self.mixer = nn.GRU(32, 32, batch_first=True)
        self.priority = nn.Linear(32, 5)

    def forward(self, blocks):
        hidden, _ = self.mixer(self.embedding(blocks))
        return self.priority(hidden[:, -1])


def train_epoch(model, optimizer, data):
    seen = total = 0
    for transcripts in data:
        try:
            blocks = anchor_blocks(transcripts)
        except NoAnchors as error:
            logger.warning("%s", error)
            continue
        loss = nn.functional.cross_entropy(model(blocks), blocks.sum(1) % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        seen, total = seen + 1, total + loss.item()
    return total / max(seen, 1)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    model = DDP(Triage())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Transcripts(dist.get_rank())
    for epoch in range(10):
        mean = train_epoch(model, optimizer, data)
        dist.barrier()
        logger.info("centre %d epoch %d loss %.3f", dist.get_rank(), epoch, mean)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
