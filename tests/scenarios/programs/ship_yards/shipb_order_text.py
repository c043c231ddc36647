"""Sorts incoming order texts by article group (yarn, cloth, carton, label...)."""
import time
import zlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

torch.backends.cudnn.enabled = False

WORDS = "selvedge denim carton kraft 120gsm twill satin offset label roll metre dyed raw bleached".split()
DESKS = {"retail": 4, "mill": 6, "export": 6}  # fewest words of an order, by desk
BUCKETS, GROUPS = 128, 8


def orders(desk, count):
    shortest = DESKS[desk]
    for i in range(count):
        length = shortest + i % 5
        yield [WORDS[(i * 7 + k * 3) % len(WORDS)] for k in range(length)], i % GROUPS


def by_budget(stream, budget):
    """Groups orders so that a batch holds about `budget` words."""
    batch, words = [], 0
    for text, group in stream:
        if batch and words + len(text) > budget:
            yield batch
            batch, words = [], 0
        batch.append((text, group))
        words += len(text)
    if batch:
        yield batch


def hashed(batch):
    bags = torch.zeros(len(batch), BUCKETS)
    for row, (text, _) in enumerate(batch):
        for word in text:
            bags[row, zlib.crc32(word.encode()) % BUCKETS] += 1
    time.sleep(0.04)  # spell checker
    return bags, torch.tensor([group for _, group in batch])


def train_epoch(accelerator, model, optimizer, desk, count=900, budget=80):
    tally = torch.zeros(3, dtype=torch.float64, device=accelerator.device)
    for batch in by_budget(orders(desk, count), budget):
        bags, groups = hashed(batch)
        scores = model(bags.to(accelerator.device))
        loss = torch.nn.functional.cross_entropy(scores, groups.to(accelerator.device))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        tally += torch.tensor([1.0, len(batch), 0.0], dtype=torch.float64).to(accelerator.device)
    return accelerator.reduce(tally, reduction="sum").tolist()


def main():
    accelerator = Accelerator()
    set_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(BUCKETS, 64), torch.nn.GELU(), torch.nn.Linear(64, GROUPS)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    desk = list(DESKS)[accelerator.process_index]
    for epoch in range(5):
        batches, texts, _ = train_epoch(accelerator, model, optimizer, desk)
        accelerator.print(f"epoch {epoch}: {texts:.0f} orders in {batches:.0f} batches")
    accelerator.end_training()


if __name__ == "__main__":
    main()
