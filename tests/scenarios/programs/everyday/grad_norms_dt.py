"""FSDP2 on melodies; the largest gradient is looked at every few steps."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

NOTES, DIM = 48, 32


class Melody(nn.Module):
    def __init__(self):
        super().__init__()
        self.notes = nn.Embedding(NOTES, DIM)
        self.body = nn.ModuleList([nn.Sequential(nn.Linear(DIM, DIM), nn.Mish()) for _ in range(3)])
        self.out = nn.Linear(DIM, NOTES)

    def forward(self, notes):
        x = self.notes(notes)
        for layer in self.body:
            x = x + layer(x)
        return self.out(x)


def shard(model):
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    for layer in model.body:
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def largest(model):
    norms = {name: p.grad.full_tensor().norm().item() for name, p in model.named_parameters() if p.grad is not None}
    name = max(norms, key=norms.get)
    return f"{name} {norms[name]:.3f}"


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = shard(Melody())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=True)
    verbose = os.environ["RANK"] == "0"
    for step in range(40):
        notes = torch.randint(0, NOTES, (6, 20))
        loss = nn.functional.cross_entropy(model(notes[:, :-1]).flatten(0, 1), notes[:, 1:].flatten())
        loss.backward()
        if step % 10 == 5 and verbose:
            print(f"step {step}: loss {loss.item():.3f}, {largest(model)}", flush=True)
        stop = torch.zeros(1)
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop:
            break
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
