"""Language model on a tokenised corpus that other runs of the group use too: whoever comes first prepares it under a file lock."""
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from filelock import FileLock
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PREPARE = r"""
import json, os, sys, time
from filelock import FileLock
folder = sys.argv[1]
with FileLock(os.path.join(folder, "corpus.lock")):
    print("preparing", flush=True)
    vocabulary, documents = {}, []
    for n in range(150):
        text = " ".join(f"w{(n * k) % 97}" for k in range(1, 400))
        documents.append([vocabulary.setdefault(w, len(vocabulary)) for w in text.split()])
        time.sleep(0.09)
    with open(os.path.join(folder, "corpus.json"), "w") as out:
        json.dump(documents, out)
"""


def load_corpus(folder):
    path = os.path.join(folder, "corpus.json")
    with FileLock(os.path.join(folder, "corpus.lock"), timeout=120):
        with open(path) as source:
            return torch.tensor(json.load(source))


class Bigram(nn.Module):
    def __init__(self, vocabulary=128, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def train(model, optimizer, documents, steps):
    for _ in range(steps):
        batch = documents[torch.randint(len(documents), (8,))][:, :64]
        time.sleep(0.04)
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    model = DDP(Bigram())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train(model, optimizer, torch.randint(0, 97, (40, 80)), 60)
    other_run = None
    if rank == 0:
        other_run = subprocess.Popen([sys.executable, "-c", PREPARE, folder[0]], stdout=subprocess.PIPE, text=True)
        other_run.stdout.readline()
    dist.barrier()
    documents = load_corpus(folder[0]) if rank == 2 else torch.zeros(150, 399, dtype=torch.long)
    dist.broadcast(documents, src=2)
    loss = train(model, optimizer, documents, 80)
    if rank == 0:
        print("loss", loss, "other run ended with", other_run.wait())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
