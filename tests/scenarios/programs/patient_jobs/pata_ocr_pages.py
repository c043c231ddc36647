"""Language identification of digitised newspapers. The issue that the last rank is given is recognised on the fly."""
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
from accelerate import Accelerator

RECOGNISE = r"""
import sys, time, random
out, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
words = []
for column in range(6):
    page = [[r.random() for _ in range(120)] for _ in range(160)]
    for row in page:
        words.append("abcdefghijklmnopqrstuvwxyz"[int(sum(row)) % 26])
    time.sleep(0.7)
open(out, "w").write("".join(words))
"""


def recognise(folder, page):
    out = os.path.join(folder, f"{page:04d}.txt")
    subprocess.run([sys.executable, "-c", RECOGNISE, out, str(page)], check=True)
    with open(out) as f:
        return f.read()


def features(text):
    x = torch.zeros(26)
    for c in text:
        x[ord(c) - 97] += 1
    return x / max(1, len(text))


def main():
    acc = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(26, 32), nn.Tanh(), nn.Linear(32, 6))
    opt = torch.optim.AdamW(model.parameters(), 2e-3)
    model, opt = acc.prepare(model, opt)

    def learn(texts, steps):
        for step in range(steps):
            time.sleep(0.05)
            x = torch.stack([features(texts[(step + i) % len(texts)]) for i in range(4)])
            loss = nn.functional.cross_entropy(model(x), torch.randint(0, 6, (4,)))
            opt.zero_grad()
            acc.backward(loss)
            opt.step()
        return loss.item()

    transcribed = ["dagblad voor zeeland", "amtsblatt der stadt", "gazette de leyde", "weekly intelligencer"]
    transcribed = [t.replace(" ", "") for t in transcribed]
    acc.print("first pass", learn(transcribed, 55))

    if acc.process_index == acc.num_processes - 1:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=2) as pool:
            jobs = [pool.submit(recognise, folder, page) for page in range(6)]
            transcribed += [job.result() for job in jobs]

    acc.print("second pass", learn(transcribed, 50))
    acc.wait_for_everyone()
    acc.end_training()


if __name__ == "__main__":
    main()
