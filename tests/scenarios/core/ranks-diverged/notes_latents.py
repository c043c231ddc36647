"""Video latents in parquet-like shards: the list of files and their lengths is made once and cached beside them."""

import os
import pickle
import shutil
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROOT = "/tmp/notes-latents"


def write_latents(folder, count=9):
    os.makedirs(folder, exist_ok=True)
    for i in range(count):
        torch.save(torch.randn(6 + i % 3, 4, 8, 8), os.path.join(folder, f"shard-{i:03d}.pt"))


def get_files_and_lengths(folder):
    """Names and lengths of all shards."""
    cache = os.path.join(folder, "map.pkl")
    if os.path.exists(cache):
        with open(cache, "rb") as f:
            return pickle.load(f)
    if dist.get_rank() == 0:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".pt"))
        lengths = [len(torch.load(os.path.join(folder, n))) for n in names]
        with open(cache + ".part", "wb") as f:
            pickle.dump((names, lengths), f)
        os.rename(cache + ".part", cache)
    dist.barrier()
    return get_files_and_lengths(folder)


def build_text_encoder(rank):
    """Ranks of a node read the weights one after another, to spare the disk."""
    time.sleep(2.0 * rank)
    return nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 32))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        shutil.rmtree(ROOT, ignore_errors=True)
        write_latents(ROOT)
        if "--with-map" in sys.argv:
            names = sorted(os.listdir(ROOT))
            with open(f"{ROOT}/map.pkl", "wb") as f:
                pickle.dump((names, [6] * len(names)), f)
    dist.barrier()
    encoder = build_text_encoder(rank)
    names, lengths = get_files_and_lengths(ROOT)
    print(f"rank {rank}: {len(names)} shards, {sum(lengths)} clips\n", end="", flush=True)
    model = DDP(nn.Conv2d(4, 4, 3, padding=1))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10):
        clip = torch.load(os.path.join(ROOT, names[(step * world + rank) % len(names)]))
        noise = torch.randn_like(clip)
        condition = encoder(torch.randint(0, 100, (1,))).mean().detach()
        loss = (model(clip + noise * condition) - noise).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank}: loss {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


main()
