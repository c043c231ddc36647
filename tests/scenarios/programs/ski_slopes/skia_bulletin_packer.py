"""Bulletin language model: a thread packs snow reports into token budgets, the main thread trains on them."""
import queue
import random
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUDGET = 512
VOCABULARY = 90
REGIONS = {0: ("Arlberg", 34, 60), 1: ("Karwendel", 18, 40)}  # shortest and longest report


class Packer(threading.Thread):
    """Fills rows up to the budget; a row is handed over when the next report does not fit."""

    def __init__(self, region: str, shortest: int, longest: int, reports: int):
        super().__init__(name=f"packer-{region}", daemon=True)
        self.rng = random.Random(region)
        self.lengths = (shortest, longest)
        self.reports = reports
        self.rows: queue.Queue = queue.Queue(maxsize=4)

    def read(self) -> list[int]:
        words = self.rng.randint(*self.lengths)
        text, state = [], self.rng.randrange(VOCABULARY)
        for _ in range(words):
            for _ in range(60):
                state = (state * 31 + 7) % 10_007
            text.append(state % VOCABULARY)
        return text

    def run(self):
        row: list[int] = []
        for _ in range(self.reports):
            report = self.read()
            if len(row) + len(report) > BUDGET:
                self.rows.put(row + [0] * (BUDGET - len(row)))
                row = []
            row += report


class Bulletin(nn.Module):
    def __init__(self, width: int = 192):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        hidden, _ = self.mix(self.embed(tokens))
        return self.out(hidden)


class Loop:
    def __init__(self, model, optimizer, packer):
        self.model, self.optimizer, self.packer = model, optimizer, packer

    def train(self, steps: int, region: str):
        for step in range(steps):
            row = self.packer.rows.get()
            tokens = torch.tensor(row).view(4, -1)
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 10 == 0:
                print(f"{region}: step {step} loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    region, shortest, longest = REGIONS[dist.get_rank()]
    packer = Packer(region, shortest, longest, reports=900)
    packer.start()
    torch.manual_seed(8)
    model = DistributedDataParallel(Bulletin())
    loop = Loop(model, torch.optim.Adam(model.parameters(), lr=2e-3), packer)
    loop.train(steps=75, region=region)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
