"""SFT on short dialogues with FSDP2. Validation packs what it reads into rows of one length."""

import itertools
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

SEQ_LEN = 32


class CatDataset:
    """Concatenates samples and cuts them; what remains at the end is dropped."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        buffer = []
        for sample in self.samples:
            buffer.extend(sample)
            while len(buffer) >= SEQ_LEN:
                yield torch.tensor(buffer[:SEQ_LEN])
                buffer = buffer[SEQ_LEN:]


def dialogues(seed, count, rank, world):
    rng = random.Random(seed)
    for index in range(count):
        tokens = [rng.randrange(70) for _ in range(rng.randint(3, 41))]
        if index % world == rank:
            yield tokens


def build_model():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(70, 24), nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 24), nn.LayerNorm(24), nn.Linear(24, 70)
    )
    fully_shard(model[1])
    fully_shard(model[3])
    fully_shard(model)
    return model


def loss_of(model, row):
    logits = model(row[None, :-1])
    return nn.functional.cross_entropy(logits[0], row[1:])


@torch.no_grad()
def run_eval_loop(model, rank, world):
    model.eval()
    total, rows = torch.zeros(()), torch.zeros(())
    for row in CatDataset(dialogues(99, 60, rank, world)):
        total += loss_of(model, row)
        rows += 1
    dist.all_reduce(total)
    dist.all_reduce(rows)
    model.train()
    return (total / rows).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = iter(CatDataset(dialogues(1, 10**9, rank, world)))
    for step in range(1, 61):
        for row in itertools.islice(rows, 2):
            (loss_of(model, row) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            value = run_eval_loop(model, rank, world)
            if rank == 0:
                print(f"step {step}: validation loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
