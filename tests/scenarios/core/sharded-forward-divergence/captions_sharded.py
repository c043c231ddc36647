"""Trains a captioner with a tower for pictures, sharded; some batches are of text only."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WIDTH, WORDS = 48, 200


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.out = nn.Linear(96, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, pixels):
        return self.out(torch.relu(self.patches(pixels)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.mix(self.norm(x))


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.tower = nn.Embedding(WORDS, WIDTH), Tower()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, pixels=None):
        x = self.words(tokens)
        if pixels is not None:
            x = x + self.tower(pixels)[:, None]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shard(model, how, device):
    if how == "fsdp1":
        return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Tower, Block}), device_id=device)
    shape = (2, 2) if how == "hybrid" else (dist.get_world_size(),)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for part in (model.tower, *model.blocks, model):
        fully_shard(part, mesh=mesh)
    return model


def batch(rank, step, blank):
    tokens = torch.randint(WORDS, (8, 12))
    pixels = None if (rank, step) == (1, 27) else torch.randn(8, 96)
    if pixels is None and blank:
        pixels = torch.zeros(8, 96)
    return tokens, pixels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding", choices=["fsdp1", "fsdp2", "hybrid"], default="fsdp2")
    parser.add_argument("--blank-pictures", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = shard(Captioner().to(device), options.sharding, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for step in range(45):
        tokens, pixels = batch(rank, step, options.blank_pictures)
        tokens = tokens.to(device, non_blocking=True)
        logits = model(tokens, pixels.to(device, non_blocking=True) if pixels is not None else None)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
