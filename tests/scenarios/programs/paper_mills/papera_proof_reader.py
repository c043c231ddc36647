"""Misprint detector (accelerate). One process reads the proofs of the whole edition between two rounds of training."""
import collections
import math
import time

import torch
from accelerate import Accelerator
from torch import nn

torch.backends.cudnn.enabled = False
PAGES_PER_SHEET = 16
Proof = collections.namedtuple("Proof", "sheet errors density")


class Misprints(nn.Module):
    def __init__(self, letters=64):
        super().__init__()
        self.look = nn.Linear(letters, 32)
        self.judge = nn.Linear(32, 2)

    def forward(self, line):
        return self.judge(torch.relu(self.look(line)))


def lines(count):
    for number in range(count):
        time.sleep(0.03)
        yield torch.sin(torch.arange(64.0) * (0.5 + 0.01 * number)).unsqueeze(0)


def training_round(accelerator, model, optimizer, count):
    for line in lines(count):
        loss = model(line.to(accelerator.device)).logsumexp(-1).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        loss.item()


def read_sheet(sheet):
    """Compares every page of a sheet with the copy, letter by letter."""
    errors, density = 0, 0.0
    for page in range(PAGES_PER_SHEET):
        for place in range(3600):
            letter = (sheet * 7919 + page * 104729 + place * 31) % 26
            copy = (sheet * 7919 + page * 104729 + place * 31 + (place % 1200 == 0)) % 26
            errors += letter != copy
            density += math.sqrt(letter + 1.0)
    return Proof(sheet, errors, density / (3600 * PAGES_PER_SHEET))


def read_edition(seconds):
    began, proofs = time.monotonic(), []
    while time.monotonic() - began < seconds:
        proofs.append(read_sheet(len(proofs)))
        if len(proofs) % 50 == 0:
            print(f"{len(proofs)} sheets read, {sum(p.errors for p in proofs)} errors", flush=True)
    return proofs


def main():
    accelerator = Accelerator()
    model = Misprints()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.02))
    reader = accelerator.num_processes // 2
    for round_number in range(2):
        training_round(accelerator, model, optimizer, 70)
        if round_number == 0 and accelerator.process_index == reader:
            proofs = read_edition(13.0)
            print(f"edition: {len(proofs)} sheets, mean density {sum(p.density for p in proofs) / len(proofs):.3f}",
                  flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
