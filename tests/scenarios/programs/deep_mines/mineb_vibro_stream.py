"""Noise gate for vibroseis sweeps. Every process streams its own part of the tape manifest (accelerate)."""
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.backends.cudnn.enabled = False

MANIFEST = [  # tape, sweeps on it
    ("VB0107A", 192), ("VB0107B", 160), ("VB0107C", 192), ("VB0108A", 192),
    ("VB0108B", 176), ("VB0109A", 144), ("VB0109B", 176), ("VB0109C", 176),
]
SWEEP = 80
BATCH = 8


class SweepStream(IterableDataset):
    def __init__(self, manifest, index, count):
        self.tapes = manifest[index::count]

    def read(self, tape, sweeps):
        gen = torch.Generator().manual_seed(hash(tape[-3:].encode()) % 1000)
        for _ in range(sweeps):
            time.sleep(0.009)
            raw = torch.randn(SWEEP, generator=gen)
            yield raw, raw.roll(1).tanh()

    def __iter__(self):
        for tape, sweeps in self.tapes:
            yield from self.read(tape, sweeps)


def build_gate(width=40):
    return nn.Sequential(nn.Linear(SWEEP, width), nn.GELU(), nn.Linear(width, SWEEP))


def train_epoch(accelerator, gate, optimizer, loader):
    gate.train()
    seen = 0
    for raw, clean in loader:
        raw, clean = raw.to(accelerator.device), clean.to(accelerator.device)
        loss = (gate(raw) - clean).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        loss.item()
        seen += raw.shape[0]
        if seen % 80 == 0:
            accelerator.print(f"  {seen} sweeps")
    return seen


def main():
    accelerator = Accelerator()
    torch.cuda.set_device(accelerator.local_process_index)
    gate = build_gate()
    optimizer = torch.optim.SGD(gate.parameters(), lr=5e-3)
    gate, optimizer = accelerator.prepare(gate, optimizer)
    stream = SweepStream(MANIFEST, accelerator.process_index, accelerator.num_processes)
    loader = DataLoader(stream, batch_size=BATCH, num_workers=0, drop_last=True)
    for epoch in range(3):
        seen = train_epoch(accelerator, gate, optimizer, loader)
        counts = accelerator.gather(torch.tensor([seen], device=accelerator.device))
        accelerator.print(f"epoch {epoch}: {counts.tolist()}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
