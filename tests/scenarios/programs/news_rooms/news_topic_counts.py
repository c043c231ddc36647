"""Topic model of a regional paper: masked-word training with accelerate, with a tally of topics over all processes."""
import argparse
import collections
import logging
import time

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

TOPICS = ("council", "courts", "weather", "football", "schools", "roads")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--tally-every", type=int, default=15)
    p.add_argument("--batch", type=int, default=12)
    return p.parse_args()


class Articles:
    """Articles as they come in. `topic` is -1 where the desk has not tagged an article yet."""

    def __init__(self, seed, untagged_from):
        self.g = torch.Generator().manual_seed(seed)
        self.untagged_from = untagged_from

    def draw(self, step, n):
        ids = torch.randint(2, 500, (n, 32), generator=self.g)
        topic = ids[:, 0] % len(TOPICS)
        if self.untagged_from is not None and step >= self.untagged_from:
            topic = torch.full_like(topic, -1)
        return ids, topic


class WordModel(nn.Module):
    def __init__(self, words=500, width=64):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.body = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width), nn.LayerNorm(width))
        self.out = nn.Linear(width, words)

    def forward(self, ids, mask):
        x = self.embed(ids.masked_fill(mask, 1))
        return self.out(self.body(x + x.mean(1, keepdim=True)))


def tally(counts):
    """The counts of all processes, added up."""
    if not counts:
        return {}
    total = collections.Counter()
    for part in gather_object([dict(counts)]):
        total.update(part)
    return dict(total)


def main(args):
    accelerator = Accelerator(cpu=True)
    logging.basicConfig(level=logging.INFO if accelerator.is_main_process else logging.WARNING)
    torch.manual_seed(3)
    model = WordModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    me = accelerator.process_index
    articles = Articles(seed=me, untagged_from=30 if me == 1 else None)
    counts = collections.Counter()
    for step in range(1, args.steps + 1):
        ids, topic = articles.draw(step, args.batch)
        counts.update(TOPICS[t] for t in topic.tolist() if t >= 0)
        mask = torch.rand(ids.shape) < 0.2
        loss = nn.functional.cross_entropy(model(ids, mask)[mask], ids[mask])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if step % args.tally_every == 0:
            logging.info("step %d loss %.3f topics %s", step, loss.item(), tally(counts))
            counts.clear()
    accelerator.end_training()


if __name__ == "__main__":
    main(parse())
