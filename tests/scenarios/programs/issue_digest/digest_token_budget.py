"""Policy updates with micro-batches by a token budget: short answers share one, long ones get their own."""

import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BUDGET, ANSWERS, VOCABULARY = 512, 12, 64


def answer_lengths(rank, update):
    """The environment gets easier to solve briefly as training goes on, and not everywhere at once."""
    base = [118, 96, 131, 104, 99, 127, 111, 120, 93, 108, 115, 102]
    brief = rank == 1 and update >= 7
    return [length // 2 if brief and index % 2 else length for index, length in enumerate(base)]


def micro_batches(lengths, budget):
    """Splits the answers into as few parts as the budget allows, of about equal size."""
    count = math.ceil(sum(lengths) / budget)
    parts = [[] for _ in range(count)]
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        smallest = min(parts, key=lambda part: sum(lengths[i] for i in part))
        smallest.append(index)
    return parts


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.embed(tokens)).log_softmax(-1)


def update_policy(model, optimizer, lengths, generator):
    answers = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in lengths]
    parts = micro_batches(lengths, BUDGET)
    optimizer.zero_grad()
    for part in parts:
        tokens = torch.cat([answers[index] for index in part])
        advantage = torch.randn(len(tokens), generator=generator)
        chosen = model(tokens).gather(1, tokens[:, None]).squeeze(1)
        loss = -(chosen * advantage).sum() / sum(lengths)
        loss.backward()
        time.sleep(0.06)
    optimizer.step()
    return {"tokens": sum(lengths), "parts": len(parts)}


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DDP(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(rank)
    for update in range(40):
        stats = update_policy(model, optimizer, answer_lengths(rank, update), generator)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, stats)
        if rank == 0:
            print(update, sum(s["tokens"] for s in everyone), "tokens", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
