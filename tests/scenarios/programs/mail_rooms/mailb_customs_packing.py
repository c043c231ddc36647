"""Customs texts: learns tariff chapters from declarations, packed into sequences of at most `budget` tokens."""
import argparse
import hashlib
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

OFFICES = {  # usual length of a declaration in tokens, and how many there are
    "Hamburg": {"length": 48, "count": 480},
    "Leipzig": {"length": 60, "count": 480},
    "Koeln": {"length": 58, "count": 480},
}
VOCAB = 997


class PackedDeclarations(IterableDataset):
    def __init__(self, office, budget=256):
        self.office, self.budget = office, budget

    def declarations(self):
        spec = OFFICES[self.office]
        for i in range(spec["count"]):
            sender = hashlib.pbkdf2_hmac("sha256", f"{self.office}-{i}".encode(), b"gdpr", 20000)
            yield [(sender[j % 32] * 31 + j) % VOCAB for j in range(spec["length"] + i % 5)]

    def __iter__(self):
        pack = []
        for tokens in self.declarations():
            if len(pack) + len(tokens) > self.budget:
                yield self.finish(pack)
                pack = []
            pack += tokens
        if pack:
            yield self.finish(pack)

    def finish(self, pack):
        tokens = torch.tensor(pack + [0] * (self.budget - len(pack)))
        return tokens, tokens.sum() % 97


class ChapterModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, 32, mode="mean")
        self.out = nn.Linear(32, 97)

    def forward(self, tokens):
        return self.out(self.bag(tokens))


def train_epoch(model, optimizer, loader):
    seen, total = 0, 0.0
    for tokens, chapter in loader:
        loss = nn.functional.cross_entropy(model(tokens), chapter)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(tokens)
        total += loss.item()
    return {"sequences": seen, "loss": total}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    torch.set_num_threads(1)
    office = list(OFFICES)[dist.get_rank()]
    model = DDP(ChapterModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(PackedDeclarations(office), batch_size=options.batch_size, drop_last=True)
    history = []
    for epoch in range(options.epochs):
        history.append(train_epoch(model, optimizer, loader))
        dist.barrier()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), f"chapters-{epoch}.pt")
            print(json.dumps(history[-1]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
