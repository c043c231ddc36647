"""Reads customs forms with accelerate; once a day one process has the scanned pages converted by an outside tool."""
import json
import subprocess
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

# stands in for the vendor's converter: a page takes it about 50 ms
CONVERTER = """
import hashlib, json, sys, time
with open(sys.argv[1], "w") as out:
    for page in range(int(sys.argv[2])):
        digest = hashlib.pbkdf2_hmac("sha256", str(page).encode(), b"form", 30000)
        time.sleep(0.03)
        out.write(json.dumps({"page": page, "ink": digest[0] / 255}) + "\\n")
        out.flush()
"""


def convert(pages, target):
    subprocess.run([sys.executable, "-c", CONVERTER, str(target), str(pages)], check=True, timeout=300)
    return [json.loads(line)["ink"] for line in target.read_text().splitlines()]


def form_batches(ink, count, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        page = torch.rand(16, 1, 96, 96, generator=g) * ink
        yield page, (page.mean((1, 2, 3)) * 40).long().clamp(max=9)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 15 * 15, 10)
    )


def learn(accelerator, model, optimizer, batches):
    for page, label in batches:
        loss = nn.functional.cross_entropy(model(page), label)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    return loss.item()


def main():
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    torch.manual_seed(6)
    net = build()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01))
    seed = accelerator.process_index
    accelerator.print("before", learn(accelerator, model, optimizer, form_batches(0.9, 300, seed)))
    ink = [None]
    if accelerator.is_main_process:
        values = convert(290, Path("pages.jsonl"))
        ink = [sum(values) / len(values)]
    broadcast_object_list(ink, from_process=0)
    accelerator.print(f"ink {ink[0]:.3f}")
    accelerator.print("after", learn(accelerator, model, optimizer, form_batches(ink[0] + 0.3, 150, 50 + seed)))
    accelerator.wait_for_everyone()
    model, optimizer = accelerator.free_memory(model, optimizer)
    accelerator.end_training()


if __name__ == "__main__":
    main()
