"""Named entities in a bare accelerate loop; what is gathered is a dict with an entry for every type of entity in the batch.

The batches of the ranks hold different types, so their dicts differ in length.
"""

import argparse
from collections import defaultdict

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

TYPES = ("person", "place", "organisation", "product")
BATCH, LENGTH = 4, 14


class Sentences(Dataset):
    """Token numbers, and how often each type occurs."""

    def __init__(self, types_of):
        self.types_of = types_of

    def __len__(self):
        return len(self.types_of)

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return torch.randint(64, (LENGTH,), generator=draw), self.types_of[index]


def collate(sentences):
    tokens, types = zip(*sentences, strict=True)
    present = sorted({t for some in types for t in some})
    gold = {TYPES[t]: torch.tensor([float(t in some) for some in types]) for t in present}
    return {"tokens": torch.stack(tokens), "gold": gold}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 24)
        self.context = nn.LSTM(24, 24, batch_first=True)
        self.types = nn.Linear(24, len(TYPES))

    def forward(self, tokens):
        return self.types(self.context(self.embedding(tokens))[0].mean(1))


def evaluate(accelerator, model, loader):
    model.eval()
    found = defaultdict(list)
    for batch in loader:
        with torch.no_grad():
            scores = model(batch["tokens"]).sigmoid()
        counts = {name: {"gold": gold, "score": scores[:, TYPES.index(name)]} for name, gold in batch["gold"].items()}
        for name, pair in accelerator.gather_for_metrics(counts).items():
            found[name].append(((pair["score"] > 0.5) == (pair["gold"] > 0.5)).float().mean().item())
    model.train()
    return {name: sum(values) / len(values) for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rare", type=int, nargs="*", default=[], help="ranks whose batch names a product")
    parser.add_argument("--poor", type=int, nargs="*", default=[], help="ranks whose batch names no organisation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    ranks = accelerator.num_processes
    held_out = [(0, 1, 2)] * (BATCH * ranks)
    for some, types in ((options.rare, (0, 1, 2, 3)), (options.poor, (0, 1))):
        for rank in some:
            held_out[BATCH * rank : BATCH * (rank + 1)] = [types] * BATCH
    model = Tagger()
    model, optimizer, training, validation = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        DataLoader(Sentences([(0, 1, 2)] * 200), batch_size=BATCH, collate_fn=collate),
        DataLoader(Sentences(held_out), batch_size=BATCH, collate_fn=collate),
    )
    for step, batch in enumerate(training, 1):
        scores = model(batch["tokens"])
        gold = torch.stack([batch["gold"].get(name, torch.zeros(BATCH)) for name in TYPES], 1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, gold)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{accelerator.process_index}] step {step}: {loss.item():.4f}\n", end="", flush=True)
        if step % 8 == 0:
            accelerator.print(evaluate(accelerator, model, validation))
    accelerator.end_training()


if __name__ == "__main__":
    main()
