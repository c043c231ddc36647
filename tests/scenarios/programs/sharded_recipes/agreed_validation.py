"""Validation with FSDP2 on packed rows: the ranks agree before each row whether all of them still have one."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def rows(rank, count):
    generator = torch.Generator().manual_seed(rank)
    for number in range(count):
        if rank == 1 and number % 5 == 4:
            clean_up(seconds=12)  # a scanned book
        yield torch.randint(80, (33,), generator=generator)


def clean_up(seconds):
    """Joins hyphenated words, pure Python and slow."""
    text = "exam- ple sen- tence of a book that was scanned " * 40
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        words = text.split()
        " ".join(word[:-1] if word.endswith("-") else word for word in words)


def all_have(row):
    flag = torch.tensor([0 if row is None else 1])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


@torch.no_grad()
def run_eval_loop(model, iterator):
    total = torch.zeros(2)
    while True:
        row = next(iterator, None)
        if not all_have(row):
            break
        logits = model(row[None, :-1])[0]
        total += torch.stack([nn.functional.cross_entropy(logits, row[1:]), torch.ones(())])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(80, 16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 80))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 31):
        row = torch.randint(80, (33,))
        nn.functional.cross_entropy(model(row[None, :-1])[0], row[1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 15:
            value = run_eval_loop(model, rows(rank, count=13 + rank))
            if rank == 0:
                print(f"validation loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
