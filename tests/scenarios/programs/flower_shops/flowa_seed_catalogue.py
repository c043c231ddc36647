"""Embed the entries of seed catalogues; every process reads its own volumes."""
import argparse
import json
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

VOLUMES = {"annuals": 780, "bulbs": 720, "climbers": 750, "grasses": 720, "herbs": 360, "perennials": 780}


def print_volumes(folder):
    """Write the catalogue as JSON lines, one file a volume."""
    for number, (name, entries) in enumerate(VOLUMES.items()):
        g = torch.Generator().manual_seed(number)
        with open(folder / f"{name}.jsonl", "w") as f:
            for _ in range(entries):
                f.write(json.dumps(torch.randint(0, 500, (20,), generator=g).tolist()) + "\n")


class Catalogue(IterableDataset):
    def __init__(self, folder, part, parts):
        self.files = sorted(folder.glob("*.jsonl"))[part::parts]

    def __iter__(self):
        for path in self.files:
            with open(path) as f:
                for line in f:
                    yield torch.tensor(json.loads(line))


class EntryEncoder(nn.Module):
    def __init__(self, words=500, dim=128):
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, 512, batch_first=True, dropout=0.0)
        self.out = nn.Linear(dim, words)

    def forward(self, tokens):
        return self.out(self.layer(self.words(tokens)))


def nearest(model, probes):
    """Spread of the probes' vectors, over all processes."""
    with torch.no_grad():
        v = F.normalize(model.module.words(probes).mean(1), dim=-1)
    everyone = [torch.empty_like(v) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, v)
    v = torch.cat(everyone)
    return (v @ v.T).mean().item()


def run(opt):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp(prefix="seeds") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    folder = pathlib.Path(folder[0])
    if rank == 0:
        print_volumes(folder)
    dist.barrier()
    torch.manual_seed(1)
    model = DDP(EntryEncoder())
    adam = torch.optim.Adam(model.parameters(), lr=opt.lr)
    for epoch in range(opt.epochs):
        loader = DataLoader(Catalogue(folder, rank, world), batch_size=opt.batch)
        for i, tokens in enumerate(loader):
            adam.zero_grad()
            logits = model(tokens)
            F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            adam.step()
        print(f"[{rank}] epoch {epoch}: {i + 1} batches", flush=True)
        spread = nearest(model, torch.arange(80).view(4, 20))
        if rank == 0:
            print(f"spread {spread:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    run(p.parse_args())
