"""Continued pre-training of a small decoder on consolidated statutes (section by section)."""
import argparse
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("statute_lm")
SECTION_MARK = 3


class SectionDecoder(nn.Module):
    def __init__(self, vocab=256, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(hidden)


class Gazette:
    """Sections of the official gazette; every jurisdiction is read by one process."""

    def __init__(self, jurisdiction, seed=11):
        self.gen = torch.Generator().manual_seed(seed + jurisdiction)
        self.jurisdiction = jurisdiction

    def block(self, step):
        tokens = torch.randint(4, 256, (8, 64), generator=self.gen)
        # the federal supplement of March consists of repealed sections only
        if not (self.jurisdiction == 1 and step == 37):
            tokens[:, ::16] = SECTION_MARK
        return tokens


def anchors(tokens):
    """Positions from which a whole section can be predicted."""
    return (tokens[:, :-8] == SECTION_MARK).nonzero()


def report(step, loss, world):
    parts = [None] * world
    dist.all_gather_object(parts, {"step": step, "loss": round(loss, 3)})
    if dist.get_rank() == 0:
        log.info("step %d %s", step, parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--report-every", type=int, default=20)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(SectionDecoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    gazette = Gazette(rank)

    for step in range(args.steps):
        tokens = gazette.block(step)
        where = anchors(tokens)
        if len(where) == 0:
            log.info("rank %d: block %d has no section heads", rank, step)
            continue
        logits = model(tokens[:, :-1])
        weight = torch.zeros(tokens.shape[0], tokens.shape[1] - 1)
        for row, column in where.tolist():
            weight[row, column:column + 8] = 1.0
        nll = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = (nll * weight.flatten()).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % args.report_every == 0:
            report(step, loss.item(), world)

    if rank == 0:
        os.makedirs("out", exist_ok=True)
        torch.save(model.module.state_dict(), "out/statutes.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
