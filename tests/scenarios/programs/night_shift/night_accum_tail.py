"""Instruction tuning: token-budget batching, gradient accumulation, sums of the epoch gathered at its end."""
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def lengths_of(rank, world, total=720):
    generator = torch.Generator().manual_seed(42)
    lengths = torch.randint(16, 160, (total,), generator=generator).tolist()
    lengths.sort()
    block = total // world
    return lengths[rank * block : (rank + 1) * block]


def by_tokens(lengths, budget=640):
    batch, longest = [], 0
    for length in lengths:
        longest = max(longest, length)
        if batch and longest * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], length
        batch.append(length)
    if batch:
        yield batch


def collate(batch):
    width = max(batch)
    ids = torch.randint(1, 50, (len(batch), width))
    for row, length in enumerate(batch):
        ids[row, length:] = 0
    return ids


class Epoch:
    def __init__(self, model, optimizer, batches):
        self.model, self.optimizer, self.batches = model, optimizer, list(batches)
        self.loss_sum, self.tokens = 0.0, 0

    def run(self):
        for index, batch in enumerate(self.batches, 1):
            last = index == len(self.batches)
            update = index % ACCUMULATE == 0 or last
            with nullcontext() if update else self.model.no_sync():
                ids = collate(batch)
                logits = self.model(ids[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
                (loss / ACCUMULATE).backward()
            if update:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.loss_sum += loss.item() * ids.numel()
            self.tokens += ids.numel()
            time.sleep(0.06)

    def gather(self):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, (self.loss_sum, self.tokens, len(self.batches)))
        return parts


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for number in range(3):
        epoch = Epoch(model, optimizer, by_tokens(lengths_of(rank, world)))
        print(f"rank {rank} epoch {number}: {len(epoch.batches)} micro-batches", flush=True)
        epoch.run()
        parts = epoch.gather()
        if rank == 0:
            print(f"epoch {number} loss {sum(p[0] for p in parts) / sum(p[1] for p in parts):.4f}", flush=True)
    dist.destroy_process_group()
