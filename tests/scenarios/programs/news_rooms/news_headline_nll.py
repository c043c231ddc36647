"""Headline writer: a GRU that continues the first sentence of an article with its headline."""
import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

IGNORED = -100
log = logging.getLogger("headlines")


class Desk(Dataset):
    """First sentences with headlines. Some articles of the archive carry no headline: all their targets are ignored."""

    def __init__(self, n=1440, first=20, headline=8):
        g = torch.Generator().manual_seed(2)
        self.text = torch.randint(1, 500, (n, first + headline), generator=g)
        self.first = first
        self.bare = {i for i in range(n) if 1050 <= i < 1098 and i % 3 == 1}

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        target = self.text[i].clone()
        target[: self.first] = IGNORED
        if i in self.bare:
            target[:] = IGNORED
        return self.text[i], target


class Writer(nn.Module):
    def __init__(self, words=500, width=96):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, ids):
        return self.out(self.gru(self.embed(ids[:, :-1]))[0])


def nll(logits, target):
    return nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=IGNORED)


def run(options):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    torch.manual_seed(0)
    model = DDP(Writer())
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    desk = Desk()
    sampler = DistributedSampler(desk, shuffle=False, drop_last=True)
    for epoch in range(options.epochs):
        losses = []
        for ids, target in DataLoader(desk, batch_size=options.batch, sampler=sampler):
            loss = nll(model(ids), target)
            if not torch.isfinite(loss):
                log.warning("loss is %s, batch left out", loss.item())
                continue
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            time.sleep(0.03)
        report = [None] * dist.get_world_size()
        dist.all_gather_object(report, (len(losses), sum(losses) / len(losses)))
        if rank == 0:
            log.info("epoch %d: %s", epoch, "  ".join(f"{n} x {mean:.3f}" for n, mean in report))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    run(parser.parse_args())
