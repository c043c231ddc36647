"""FSDP2: supervised tuning with a validation pass over packed sequences every few steps."""
import argparse
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocabulary=64, width=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def packed(documents, length=96):
    buffer = []
    for document in documents:
        buffer.extend(document)
        while len(buffer) >= length:
            yield torch.tensor(buffer[:length]).unsqueeze(0)
            buffer = buffer[length:]


def validation_documents(rank, world):
    rng = random.Random(5)
    everything = [[rng.randrange(64) for _ in range(rng.randint(10, 40))] for _ in range(150)]
    everything += [[rng.randrange(64) for _ in range(260)] if i % world == 2 else [1, 2, 3] for i in range(150, 159)]
    return everything[rank::world]


def run_eval(model, rank, world, agree):
    model.eval()
    batches = packed(validation_documents(rank, world))
    total, count = torch.zeros(()), torch.zeros(())
    with torch.no_grad():
        while True:
            ids = next(batches, None)
            if agree:
                ready = torch.tensor(int(ids is not None))
                dist.all_reduce(ready, op=dist.ReduceOp.MIN)
                ids = ids if ready.item() else None
            if ids is None:
                break
            logits = model(ids[:, :-1])
            total += nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            count += 1
            time.sleep(0.05)
    dist.all_reduce(total)
    dist.all_reduce(count)
    model.train()
    return (total / count).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--agree", action="store_true")
    agree = parser.parse_args().agree
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = Model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 61):
        ids = torch.randint(0, 64, (4, 64))
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if step % 20 == 0:
            value = run_eval(model, rank, world, agree)
            if rank == 0:
                print(f"step {step} train {loss.item():.3f} valid {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
