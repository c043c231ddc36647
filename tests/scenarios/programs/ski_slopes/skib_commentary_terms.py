"""Tags live commentary (goal, card, chance, nothing) after bringing the broadcasters' terms into one form."""
import itertools
import os
import random
import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

TAGS = {"goal": 0, "booked": 1, "post": 2}
BUCKETS = 1024
GLOSSARY_UK = {
    "penalty shoot-out": "spot kick contest",
    "yellow card": "booked",
    "woodwork": "post",
    "own goal": "goal",
}
GLOSSARY_INTL = {
    "spot kick": "penalty",
    "penalty contest": "penalty shoot-out",
    "caution": "booked",
    "upright": "post",
    "nets": "goal",
}
COMPETITIONS = ("league", "cup", "friendly")
WORDS = "he turns away from two and looks for the far side while keeper shouts at his back four again".split()
EVENTS = ("nets", "own goal", "yellow card", "caution", "woodwork", "upright", "corner", "throw-in", "substitution")


def normalise(line):
    """Replaces one term at a time, until none of the glossaries' is left."""
    rules = list({**GLOSSARY_UK, **GLOSSARY_INTL}.items())
    while True:
        for term, common in rules:
            if term in line:
                line = line.replace(term, common)
                break
        else:
            return line


def ticker(competition, seed):
    rng = random.Random(seed)
    for minute in itertools.count(1):
        words = [rng.choice(WORDS) for _ in range(rng.randint(20, 40))]
        words.insert(rng.randint(0, len(words)), rng.choice(EVENTS))
        if competition == "cup" and minute % 4800 == 0:
            words.append("so it goes to a penalty shoot-out")
        yield " ".join(words)


def tag(line):
    return next((number for word, number in TAGS.items() if word in line), 3)


def hashed(line):
    counts = torch.zeros(BUCKETS)
    for first, second in itertools.pairwise(line.split()):
        counts[zlib.crc32(f"{first} {second}".encode()) % BUCKETS] += 1
        counts[zlib.crc32(second.encode()) % BUCKETS] += 1
    return counts


def in_batches(lines, size):
    while True:
        chunk = [normalise(line) for line in itertools.islice(lines, size)]
        yield torch.stack([hashed(line) for line in chunk]), torch.tensor([tag(line) for line in chunk])


def main(steps=1500, size=32):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(BUCKETS, 4))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    stream = in_batches(ticker(COMPETITIONS[rank % 3], seed=rank), size)
    hits = torch.zeros(1)
    for step, (counts, tags) in zip(range(1, steps + 1), stream):
        logits = model(counts)
        loss = F.cross_entropy(logits, tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (logits.argmax(1) == tags).float().mean()
        if step % 50 == 0:
            dist.all_reduce(hits)
            if rank == 0:
                print(f"step {step}: {hits.item() / 50 / dist.get_world_size():.3f}", flush=True)
            hits.zero_()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
