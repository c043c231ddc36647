"""Fine-tunes a small essay scorer (holistic score 1-6) on windows of whole sentences."""
import logging
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("essays")
VOCAB, WINDOW, BATCH, EPOCHS, STEPS = 400, 48, 24, 2, 80


class EmptyWindows(ValueError):
    pass


def read_essays(rank, epoch):
    """One list of token lists per step; lengths follow the grade that this rank reads."""
    rng = random.Random(100 * rank + epoch)
    for step in range(STEPS):
        low, high = (60, 200)
        if (rank, epoch, step) == (1, 0, 31):  # a first-grade folder
            low, high = (5, 20)
        yield [[rng.randrange(VOCAB) for _ in range(rng.randint(low, high))] for _ in range(BATCH)]


def windows(essays):
    rows = [e[:WINDOW] for e in essays if len(e) >= WINDOW]
    if not rows:
        raise EmptyWindows(f"none of {len(essays)} essays fills a window of {WINDOW}")
    tokens = torch.tensor(rows)
    target = (tokens.float().mean(1) / VOCAB * 5 + 1).unsqueeze(1)
    return tokens, target


class Scorer(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, tokens):
        states, _ = self.read(self.embed(tokens))
        return self.score(states.mean(1))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Scorer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        losses = []
        for step, essays in enumerate(read_essays(rank, epoch)):
            try:
                tokens, target = windows(essays)
            except EmptyWindows as reason:
                log.warning("epoch %d step %d: %s", epoch, step, reason)
                continue
            loss = nn.functional.smooth_l1_loss(model(tokens), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if rank == 0 and step % 10 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, losses[-1])
        table = [torch.zeros(2) for _ in range(world)]
        dist.all_gather(table, torch.tensor([sum(losses) / len(losses), float(len(losses))]))
        if rank == 0:
            for reader, (mean, count) in enumerate(table):
                log.info("reader %d: mean %.4f over %d batches", reader, mean, int(count))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
