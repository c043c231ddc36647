"""Pretraining on shards of tokens; where reading stood is kept in a cursor, so that a run can go on where it was."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONTEXT, BATCH, VOCABULARY = 16, 4, 80
SHARDS = {0: (4100, 3900, 4000), 1: (1200, 900, 1100), 2: (4200, 4050, 3800)}  # tokens of each rank's shards


@dataclass
class Cursor:
    shard: int = 0
    position: int = 0


class TokenLoader:
    """Batches without end: after the last shard comes the first."""

    def __init__(self, rank, cursor):
        generator = torch.Generator().manual_seed(rank)
        self.shards = [torch.randint(0, VOCABULARY, (size,), generator=generator) for size in SHARDS[rank]]
        self.cursor = cursor

    def __iter__(self):
        need = BATCH * CONTEXT + 1
        cursor = self.cursor
        while True:
            tokens = self.shards[cursor.shard % len(self.shards)]
            chunk = tokens[cursor.position : cursor.position + need]
            if len(chunk) < need:
                cursor.shard += 1
                if cursor.shard < len(self.shards):
                    cursor.position = 0
                continue
            cursor.position += need - 1
            yield chunk[:-1].view(BATCH, CONTEXT), chunk[1:].view(BATCH, CONTEXT)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.mix = nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens))[0])


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = iter(TokenLoader(rank, Cursor()))
    for step in range(600):
        tokens, following = next(loader)
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
