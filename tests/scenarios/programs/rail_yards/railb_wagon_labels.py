"""Freight wagon damage: text notes of inspectors are normalised by an external tool, then classified."""
import os
import random
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

TOOL = r"""
import sys
for line in sys.stdin:
    words = line.lower().split()
    sys.stdout.write(" ".join(words) + " |" + " ".join(sorted(set(words))) + "\n")
    sys.stdout.flush()
"""
PARTS = "axle buffer bogie brake coupling door floor hatch ladder roof spring tarpaulin valve wall wheel".split()
STATES = "bent broken cracked flat leaking loose missing rusted seized worn".split()


class Normaliser:
    """Keeps one tool process per rank; a batch of notes goes in, as many lines come out."""

    def __init__(self):
        self.proc = subprocess.Popen([sys.executable, "-c", TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, notes):
        for note in notes:
            self.proc.stdin.write(note + "\n")
        self.proc.stdin.flush()
        return [self.proc.stdout.readline() for _ in notes]

    def close(self):
        self.proc.stdin.close()
        self.proc.wait()


def inspections(rank, count):
    rng = random.Random(rank)
    for train in range(count):
        # block trains come with a full report on every wagon
        wagons, length = (64, 260) if rank == 1 and train and train % 360 == 0 else (24, 6)
        notes = []
        for wagon in range(wagons):
            words = [f"{rng.choice(STATES)} {rng.choice(PARTS)} {rng.randint(10, 99)}" for _ in range(length)]
            notes.append(f"Wagon {wagon} " + " ".join(words).title())
        yield notes


def encode(lines):
    x = torch.zeros(len(lines), len(PARTS) + len(STATES))
    for row, line in enumerate(lines):
        for column, word in enumerate(PARTS + STATES):
            x[row, column] = line.count(word)
    severity = x[:, len(PARTS) + 1] + x[:, len(PARTS) + 2] + x[:, 3]
    return x, (severity > 2).float().unsqueeze(1)


def train(rank):
    model = DDP(torch.nn.Sequential(torch.nn.Linear(len(PARTS) + len(STATES), 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    optim = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = torch.nn.BCEWithLogitsLoss()
    normalise = Normaliser()
    for number, notes in enumerate(inspections(rank, 900)):
        x, y = encode(normalise(notes))
        optim.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optim.step()
        if rank == 0 and number % 20 == 0:
            print(f"train {number}: {loss.item():.3f}", flush=True)
    normalise.close()
    return model.module


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(8)
    dist.init_process_group("gloo")
    net = train(dist.get_rank())
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), f"/tmp/wagons-{os.getpid()}.pt")
    dist.destroy_process_group()
