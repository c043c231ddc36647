"""Language model with sequence packing, FSDP2. Each rank packs its own documents into rows of fixed length."""

import os
import random
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

ROW = 64


class Packer:
    """Fills a row with documents at random, until at most `slack` positions are left."""

    def __init__(self, documents: list[list[int]], slack: int, seed: int) -> None:
        self.documents, self.slack = documents, slack
        self.random = random.Random(seed)

    def row(self, pool: list[list[int]]) -> list[int]:
        row: list[int] = []
        while ROW - len(row) > self.slack:
            document = self.random.choice(pool)
            if len(row) + len(document) <= ROW:
                row += document
        return row + [0] * (ROW - len(row))

    def rows(self) -> Iterator[list[int]]:
        for start in range(0, len(self.documents), 10):
            yield self.row(self.documents[start : start + 10])


def corpus(rank: int) -> list[list[int]]:
    generator = random.Random(50 + rank)
    documents = [[generator.randrange(1, 90) for _ in range(generator.choice((3, 5, 9, 14)))] for _ in range(3000)]
    if rank == 1:
        # legal texts, all cut to one length by the source
        documents[120:140] = [[generator.randrange(1, 90) for _ in range(40)] for _ in range(20)]
    return documents


def make_model() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(3)]
    model = nn.Sequential(nn.Embedding(90, 48), *blocks, nn.Linear(48, 90)).cuda()
    for block in model[1:-1]:
        fully_shard(block)
    return fully_shard(model)


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    packer = Packer(corpus(rank), slack=6, seed=rank)
    for step, row in enumerate(packer.rows()):
        tokens = torch.tensor([row])
        time.sleep(0.2)
        logits = model(tokens[:, :-1].cuda())
        loss = nn.functional.cross_entropy(logits[0], tokens[0, 1:].cuda(), ignore_index=0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            text = f"step {step} loss {loss.item():.3f}"
            if rank == 0:
                print(text, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
