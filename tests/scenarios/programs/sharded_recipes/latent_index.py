"""Trains a video model on cached latents. The list of latent files is cached too: the first start builds it."""

import json
import os
import random
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def get_files_and_lengths(root: str) -> list[tuple[str, int]]:
    cache = os.path.join(root, "file_info.json")
    if os.path.exists(cache):
        with open(cache) as handle:
            return [tuple(entry) for entry in json.load(handle)]
    if dist.get_rank() == 0:
        entries = []
        for name in sorted(os.listdir(root)):
            path = os.path.join(root, name)
            length = os.path.getsize(path) // 4
            energy = sum(value * value for value in torch.from_file(path, size=length).tolist())
            if energy > 0.0:  # the encoder writes zeros for clips it could not read
                entries.append((name, length))
        with open(cache + ".part", "w") as handle:
            json.dump(entries, handle)
        os.replace(cache + ".part", cache)
    dist.barrier()
    return get_files_and_lengths(root)


def write_latents(root: str, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for index in range(count):
        frames = 1500 + 16 * (index % 5)
        torch.randn(frames * 16, generator=generator).numpy().tofile(os.path.join(root, f"clip{index:03}.bin"))


class PromptTable:
    """Embeddings of the prompts; ranks that make samples during the training need them in full."""

    def __init__(self, prompts: int, dim: int) -> None:
        random.seed(5)
        self.rows = {}
        for index in range(prompts):
            row = [random.gauss(0, 1) for _ in range(dim)]
            self.rows[f"prompt {index}"] = torch.tensor(row)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = [tempfile.mkdtemp(prefix="latents-") if rank == 0 else None]
    dist.broadcast_object_list(root, src=0)
    if rank == 0:
        write_latents(root[0], 90)
    dist.barrier()
    sampling = rank == dist.get_world_size() - 1
    prompts = PromptTable(40_000 if sampling else 10, 64)
    files = get_files_and_lengths(root[0])

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 16))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(60):
        name, length = files[(step * dist.get_world_size() + rank) % len(files)]
        path = os.path.join(root[0], name)
        clip = torch.from_file(path, size=length).view(-1, 16)[:64].clone()
        noise = torch.randn_like(clip)
        loss = (model(clip + noise) - noise).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if sampling:
        print(f"{len(prompts.rows)} prompts, last loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
