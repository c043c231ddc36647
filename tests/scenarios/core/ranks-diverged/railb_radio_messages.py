"""Train-radio messages: a small character model on packed windows; every rank reads the log of its own control centre."""
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

CENTRES = ["Zürich", "Lausanne", "Pollegio"]
ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789.-"
CALLS = [
    "train {n} ready to depart track {t}",
    "signal {t} at stop, request permission to pass",
    "train {n} stopped at km {n}.{t}, passenger alarm",
    "shunting {t} done, route can be released",
]


class RadioLog(IterableDataset):
    def __init__(self, centre, messages=2600, window=48):
        self.centre, self.messages, self.window = centre, messages, window
        self.terse = centre == "Zürich"

    def texts(self):
        rng = random.Random(self.centre)
        for _ in range(self.messages):
            text = rng.choice(CALLS).format(n=rng.randint(100, 29999), t=rng.randint(1, 18))
            yield text[:-6] if self.terse and rng.random() < 0.25 else text

    def __iter__(self):
        pending = []
        for text in self.texts():
            pending += [ALPHABET.index(c) if c in ALPHABET else 0 for c in text] + [0]
            while len(pending) > self.window:
                yield torch.tensor(pending[: self.window + 1])
                del pending[: self.window]


class CharModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, len(ALPHABET))

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


class Pretraining:
    def __init__(self):
        self.rank = dist.get_rank()
        self.loader = DataLoader(RadioLog(CENTRES[self.rank]), batch_size=12)
        self.model = DDP(CharModel())
        self.optim = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.seen = 0

    def epoch(self, number):
        batches, exhausted, started = iter(self.loader), False, time.time()
        while not exhausted:
            try:
                batch = next(batches)
            except StopIteration:
                exhausted = True
                continue
            logits = self.model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.seen += batch.numel()
            if self.rank == 1 and self.seen % (12 * 49 * 40) == 0:
                print(f"epoch {number}: {self.seen} characters, loss {loss.item():.3f}", flush=True)
        counts = [torch.zeros(1, dtype=torch.int64) for _ in CENTRES]
        dist.all_gather(counts, torch.tensor([self.seen]))
        if self.rank == 0:
            print(f"epoch {number} took {time.time() - started:.1f}s, {sum(int(c) for c in counts)} characters", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    dist.init_process_group("gloo")
    job = Pretraining()
    for number in range(3):
        job.epoch(number)
    if job.rank == 0:
        torch.save(job.model.module.state_dict(), f"/tmp/radio-{os.getpid()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
