"""Field names to map sheets: the first process builds the gazetteer from the register's dump, then all of them train on it."""
import os
import pickle
import tempfile
import time
from collections import Counter, defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ENDINGS = ("acker", "wiese", "feld", "kamp", "breite", "grund", "horst", "moor")


def dump(blocks, rows=2500, rate=9.0):
    """Blocks of the dump as they come off the archive's tape, about nine in a second."""
    gen = torch.Generator().manual_seed(0)
    began = time.monotonic()
    for number in range(blocks):
        codes = torch.randint(97, 123, (rows, 7), generator=gen).tolist()
        yield [(bytes(code).decode() + ENDINGS[(number + i) % len(ENDINGS)], code[0] % 50) for i, code in enumerate(codes)]
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))


def build(path, blocks=125):
    sheets, grams = defaultdict(set), Counter()
    for number, block in enumerate(dump(blocks)):
        for name, sheet in block:
            for i in range(len(name) - 2):
                grams[name[i:i + 3]] += 1
            sheets[name].add(sheet)
        if number % 12 == 0:
            print(f"gazetteer: {number}/{blocks} blocks, {len(sheets)} names", flush=True)
    vocabulary = {gram: i for i, (gram, _) in enumerate(grams.most_common(2000))}
    sample = [(name, min(s)) for name, s in list(sheets.items())[:20000]]
    with open(path + ".part", "wb") as out:
        pickle.dump((vocabulary, sample), out)
    os.replace(path + ".part", path)


def encode(name, vocabulary):
    row = torch.zeros(len(vocabulary))
    for i in range(len(name) - 2):
        if (j := vocabulary.get(name[i:i + 3])) is not None:
            row[j] += 1
    return row


def epoch(model, optimizer, vocabulary, sample, rank, world, steps):
    for step in range(steps):
        part = sample[(step * world + rank) * 32:(step * world + rank + 1) * 32]
        x = torch.stack([encode(name, vocabulary) for name, _ in part])
        y = torch.tensor([sheet for _, sheet in part])
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join(tempfile.gettempdir(), f"gazetteer-{os.environ['MASTER_PORT']}.pkl")
    if rank == 0:
        build(path)
    dist.barrier()
    with open(path, "rb") as file:
        vocabulary, sample = pickle.load(file)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(len(vocabulary), 128), nn.ReLU(), nn.Linear(128, 50)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(3):
        loss = epoch(model, optimizer, vocabulary, sample, rank, world, 40)
        if rank == 0:
            print(f"epoch {number} loss {loss:.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        os.remove(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
