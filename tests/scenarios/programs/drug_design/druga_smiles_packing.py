"""Next-token training on SMILES that are packed into blocks of fixed length; every rank streams its own shards."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

VOCABULARY = {c: i + 1 for i, c in enumerate("CNOSPFclBrnos()[]=#@+-123456789")}
END = 0
SHARDS = {  # name of the shard -> (molecules, mean length)
    "chembl-frag": (700, 21),
    "chembl-lead": (700, 45),
    "zinc-drug": (700, 47),
    "enamine-frag": (700, 24),
    "enamine-lead": (700, 44),
    "pubchem-drug": (700, 49),
}


def read(name):
    molecules, length = SHARDS[name]
    source = random.Random(name)
    letters = list(VOCABULARY)
    for _ in range(molecules):
        yield [VOCABULARY[source.choice(letters)] for _ in range(length + source.randint(-3, 3))]


class Packed(IterableDataset):
    def __init__(self, names, block):
        self.names, self.block = names, block

    def __iter__(self):
        rest = []
        for name in self.names:
            for tokens in read(name):
                rest += tokens + [END]
                while len(rest) > self.block:
                    yield torch.tensor(rest[: self.block + 1])
                    rest = rest[self.block :]


class Decoder(nn.Module):
    def __init__(self, size, width=48):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, size)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


def run_epoch(model, optimizer, loader):
    summed, steps = 0.0, 0
    for block in loader:
        logits = model(block[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        summed, steps = summed + loss.item(), steps + 1
    return summed / max(steps, 1), steps


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = sorted(SHARDS, key=lambda name: name.split("-")[1] + name)
    order = [n for kind in ("frag", "lead", "drug") for n in names if n.endswith(kind)]
    share = len(order) // world
    mine = order[rank * share : (rank + 1) * share]
    loader = DataLoader(Packed(mine, block=64), batch_size=8)
    model = DistributedDataParallel(Decoder(len(VOCABULARY) + 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        loss, steps = run_epoch(model, optimizer, loader)
        dist.barrier()
        print(f"rank {rank} epoch {epoch}: {loss:.4f} ({steps} steps, {','.join(mine)})", flush=True)
        if rank == 0:
            torch.save(model.module.state_dict(), os.path.join("/tmp", f"smiles-lm-{os.getpid()}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
