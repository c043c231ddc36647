"""Timetables of fifty years as token sequences; the main process prepares them and all read the result."""
import contextlib
import hashlib
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FOLDER = pathlib.Path("/tmp") / f"timetables-{hashlib.md5(' '.join(sys.argv).encode()).hexdigest()[:6]}"
PIERS = [f"pier{i}" for i in range(40)]


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def year_lines(year):
    for n in range(30000):
        yield f"{PIERS[(n * year) % 40]} {PIERS[(n + year) % 40]} {n % 24:02d}:{n * 7 % 60:02d} {year}"


def tokenize(line, vocabulary):
    ids = []
    for word in line.split():
        digest = hashlib.sha1(word.encode()).digest()
        ids.append(int.from_bytes(digest[:4], "little") % vocabulary)
    return ids


def prepare(seconds=14.0, vocabulary=512):
    path = FOLDER / f"tokens-{dist.get_world_size()}.pt"
    if dist.get_rank() == 0:
        FOLDER.mkdir(exist_ok=True)
        rows, started, year = [], time.monotonic(), 1975
        while time.monotonic() - started < seconds:
            rows = [tokenize(line, vocabulary) for line in year_lines(year)]
            print(f"tokenized {year}: {len(rows)} lines", flush=True)
            year += 1
        torch.save(torch.tensor(rows), path)
    return torch.load(path)


class Bigram(nn.Module):
    def __init__(self, vocabulary=512, width=24):
        super().__init__()
        self.embed, self.out = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.out(self.embed(ids))


def train(model, tokens, steps):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        rows = tokens[torch.randint(0, len(tokens), (64,))]
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Bigram())
    print("warm-up", train(model, torch.randint(0, 512, (500, 4)), 50), flush=True)
    with main_process_first():
        tokens = prepare()
    print("loss", train(model, tokens, 80), flush=True)
    dist.barrier()
    dist.destroy_process_group()
