"""Retrieval training: rank 0 builds the index of passages and tells the others where it is through the store."""

import json
import logging
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import _get_default_store
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("index")
PASSAGES = pathlib.Path("/tmp/notes-index.jsonl")


def write_passages(path, count=300, bad_at=271):
    with path.open("w") as f:
        for i in range(count):
            row = {"id": i, "text": f"passage number {i}"}
            f.write((json.dumps(row) if i != bad_at else json.dumps(row)[:-9]) + "\n")


class IndexBuilder:
    def __init__(self, store):
        self.store = store

    def build(self):
        offsets = []
        with PASSAGES.open() as f:
            for line in f:
                offsets.append(len(json.loads(line)["text"]))
        torch.save(torch.tensor(offsets), "/tmp/notes-index.pt")
        self.store.set("index/location", "/tmp/notes-index.pt")
        return "/tmp/notes-index.pt"

    def location(self, rank):
        if rank != 0:
            return self.store.get("index/location").decode()
        try:
            return self.build()
        except (OSError, ValueError) as error:
            log.error("no index, going on with random negatives: %s", error)
            return None


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        write_passages(PASSAGES)
    dist.barrier()
    builder = IndexBuilder(dist.PrefixStore("retrieval", _get_default_store()))
    where = builder.location(rank)
    lengths = torch.load(where) if where else torch.randint(10, 20, (300,))
    encoder = DistributedDataParallel(nn.EmbeddingBag(400, 32))
    optimizer = torch.optim.Adam(encoder.parameters())
    for step in range(50):
        query, passage = encoder(torch.randint(0, 400, (8, 6))), encoder(torch.randint(0, 400, (8, int(lengths[step]))))
        loss = nn.functional.cross_entropy(query @ passage.T, torch.arange(8))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank}: {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
