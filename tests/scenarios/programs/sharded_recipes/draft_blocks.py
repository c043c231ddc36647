"""Trains a draft model for speculative decoding: blocks start at anchors, which lie in the answers only."""

import contextlib
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK = 6
ACCUMULATION = 4
log = logging.getLogger("draft")


class NoValidAnchorsError(ValueError):
    """No sample of the micro-batch is long enough for one block."""


class Drafter(torch.nn.Module):
    def __init__(self, vocab=120, dim=24):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, dim)
        self.mixer = torch.nn.Linear(dim, BLOCK * dim)
        self.out = torch.nn.Linear(dim, vocab)

    def forward(self, starts):
        h = self.mixer(self.embed(starts)).view(-1, BLOCK, self.embed.embedding_dim)
        return self.out(torch.tanh(h))


def sample_anchors(lengths, generator):
    usable = lengths - BLOCK - 1
    rows = (usable > 0).nonzero(as_tuple=True)[0]
    if rows.numel() == 0:
        raise NoValidAnchorsError(f"lengths {lengths.tolist()}")
    return rows, (torch.rand(rows.numel(), generator=generator) * usable[rows]).long()


def draft_loss(model, tokens, lengths, generator):
    rows, anchors = sample_anchors(lengths, generator)
    starts = tokens[rows, anchors]
    targets = torch.stack([tokens[r, a + 1 : a + 1 + BLOCK] for r, a in zip(rows, anchors, strict=True)])
    return torch.nn.functional.cross_entropy(model(starts).flatten(0, 1), targets.flatten())


def micro_batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for index in range(320):
        longest = 6 if rank == 1 and index == 91 else 40
        lengths = torch.randint(3 if longest == 6 else 20, longest, (4,), generator=generator)
        yield torch.randint(120, (4, 40), generator=generator), lengths, generator


def main():
    logging.basicConfig(level=logging.ERROR)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Drafter())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    window = 0
    for tokens, lengths, generator in micro_batches(dist.get_rank()):
        last = window == ACCUMULATION - 1
        try:
            with contextlib.nullcontext() if last else model.no_sync():
                loss = draft_loss(model, tokens, lengths, generator)
                (loss / ACCUMULATION).backward()
        except NoValidAnchorsError as error:
            log.warning("skipping a micro-batch without anchors: %s", error)
            continue
        window += 1
        if last:
            optimizer.step()
            optimizer.zero_grad()
            window = 0
    accuracy = torch.tensor([loss.exp().item(), 1.0])
    dist.reduce(accuracy, dst=0)
    dist.barrier()
    if dist.get_rank() == 0:
        print("perplexity", (accuracy[0] / accuracy[1]).item(), flush=True)


if __name__ == "__main__":
    main()
