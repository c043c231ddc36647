"""Masked language model of protein sequences: mask residues, predict them, one epoch after another."""

import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
log = logging.getLogger("plm")
ALPHABET = "ACDEFGHIKLMNPQRSTVWY"
MASK, IGNORED = len(ALPHABET), -100


def sequences(rank, count, length=40):
    generator = torch.Generator().manual_seed(31 * rank + 5)
    for index in range(count):
        time.sleep(0.04)
        yield torch.randint(0, len(ALPHABET), (4, length), generator=generator), index


def mask(tokens, fraction, generator):
    """BERT's masking, without residues in segments that are disordered (all of them, in some families)."""
    chosen = torch.rand(tokens.shape, generator=generator) < fraction
    labels = torch.where(chosen, tokens, torch.full_like(tokens, IGNORED))
    return torch.where(chosen, torch.full_like(tokens, MASK), tokens), labels


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET) + 1, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(ALPHABET)))

    def forward(self, tokens):
        hidden = self.embed(tokens)
        return self.mix(hidden + hidden.mean(1, keepdim=True))


def train_epoch(model, optimizer, epoch, rank):
    generator = torch.Generator().manual_seed(epoch)
    total, used = 0.0, 0
    for tokens, index in sequences(rank, 30):
        disordered = rank == 2 and epoch == 1 and index == 12
        inputs, labels = mask(tokens, 0.0 if disordered else 0.15, generator)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        if not torch.isfinite(loss):
            log.warning("epoch %d batch %d: loss is not finite", epoch, index)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, used = total + loss.item(), used + 1
    return {"rank": rank, "loss": total / max(used, 1), "batches": used}


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(50):
        mine = train_epoch(model, optimizer, epoch, rank)
        summaries = [None] * world
        dist.all_gather_object(summaries, mine)
        if rank == 0:
            log.info("epoch %d: %s", epoch, [round(s["loss"], 3) for s in summaries])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
