"""Caption model; the validation captions are scored by an external command-line scorer, as with the METEOR jar."""
import os
import random
import subprocess
import sys
import tempfile
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SCORER = r"""
import sys, time
def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]
pairs = list(zip(open(sys.argv[1]), open(sys.argv[2])))
total = 0.0
for hypothesis, reference in pairs:
    h, r = hypothesis.split(), reference.split()
    for _ in range(3):
        total += 1 - distance(h, r) / max(len(h), len(r))
    time.sleep(0.12)
print(total / (3 * len(pairs)))
"""


def write_lines(path, count, seed):
    rng = random.Random(seed)
    words = "a the man dog sits runs on under table street red small with ball".split()
    with open(path, "w") as out:
        for _ in range(count):
            out.write(" ".join(rng.choices(words, k=rng.randint(8, 20))) + "\n")


def meteor(folder):
    hyp, ref = os.path.join(folder, "hyp.txt"), os.path.join(folder, "ref.txt")
    write_lines(hyp, 110, 1)
    write_lines(ref, 110, 2)
    done = subprocess.run([sys.executable, "-c", SCORER, hyp, ref], capture_output=True, text=True, check=True)
    return float(done.stdout)


def train_epoch(accelerator, model, optimizer, loader):
    model.train()
    for features, word in loader:
        time.sleep(0.03)
        loss = nn.functional.cross_entropy(model(features), word)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(3600, 32), torch.randint(0, 50, (3600,)))
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 50))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16, shuffle=True))
    for epoch in range(2):
        loss = train_epoch(accelerator, model, optimizer, loader)
        mean = accelerator.reduce(loss.detach(), "mean").item()
        accelerator.print(f"epoch {epoch}: loss {mean:.3f}")
        if epoch == 0:
            if accelerator.is_main_process:
                with tempfile.TemporaryDirectory() as folder:
                    print("METEOR", round(meteor(folder), 4))
            accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
