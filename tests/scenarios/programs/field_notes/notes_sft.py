"""Supervised fine-tuning on packed conversations, FSDP2, with a validation pass before the first epoch and after each."""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

SEQ = 64


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class TinyLM(nn.Module):
    def __init__(self, vocab=256, dim=32, depth=3):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def conversations(split, rank, world):
    rng = random.Random(f"{split}-7")
    for i in range(240):
        length = rng.randrange(20, 200) if i % world != 2 else rng.randrange(20, 120)
        text = [rng.randrange(256) for _ in range(length)]
        if i % world == rank:
            yield text


def packed(split, rank, world, repeat):
    buffer = []
    while True:
        for text in conversations(split, rank, world):
            buffer += text
            while len(buffer) > SEQ:
                yield torch.tensor(buffer[: SEQ + 1])
                buffer = buffer[SEQ:]
        if not repeat:
            return


def loss_of(model, tokens):
    logits = model(tokens[None, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:])


@torch.no_grad()
def run_eval_loop(model, rank, world, limit):
    total = torch.zeros(2)
    for index, tokens in enumerate(packed("val", rank, world, repeat=False)):
        if limit and index >= limit:
            break
        total += torch.tensor([loss_of(model, tokens).item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit-val-batches", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = TinyLM()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = packed("train", rank, world, repeat=True)
    for epoch in range(3):
        for step in range(args.steps):
            loss = loss_of(model, next(train))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch} train loss {loss.item():.3f}", flush=True)
        value = run_eval_loop(model, rank, world, args.limit_val_batches)
        if rank == 0:
            print(f"epoch {epoch} val loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
