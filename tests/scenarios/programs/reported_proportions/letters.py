"""FSDP2: a small character model over letters; each rank keeps about a tenth of its own letters for validation."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader


def read_letters(rank: int) -> list[torch.Tensor]:
    """What this rank has got of the archive."""
    generator = torch.Generator().manual_seed(rank)
    return [torch.randint(0, 40, (24,), generator=generator) for _ in range(600)]


def split(letters: list[torch.Tensor], seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Training and validation."""
    rng = random.Random(seed)
    train, held = [], []
    for letter in letters:
        (held if rng.random() < 0.1 else train).append(letter)
    return train, held


def build() -> nn.Module:
    """Embedding, two blocks, head."""
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(40, 32), *blocks, nn.Linear(32, 40))
    for block in model[1:3]:
        fully_shard(block)
    return fully_shard(model)


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train, held = split(read_letters(rank), seed=7 + rank)
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        total = torch.zeros(())
        for rows in DataLoader(train, batch_size=8, shuffle=True):
            logits = model(rows[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.broadcast(total, src=0)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(train):.4f}, {len(held)} letters kept, {world} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
