"""FSDP2; the sharded checkpoint is merged into one file by the first rank, while the others wait for it."""

import tempfile
import time
import zlib
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def write_shard(model, folder):
    rank = dist.get_rank()
    shard = {name: p.to_local().detach().clone() for name, p in model.named_parameters()}
    torch.save(shard, folder / f"model-{rank:05}.pt")
    dist.barrier()


def consolidate(folder, world, seconds):
    """Concatenates the shards and checks the result, with the pure-Python checksum that the hub asks for."""
    shards = [torch.load(folder / f"model-{rank:05}.pt") for rank in range(world)]
    merged = {name: torch.cat([shard[name] for shard in shards]) for name in shards[0]}
    data = b"".join(tensor.numpy().tobytes() for tensor in merged.values())
    until, checks = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        table = bytearray(256)
        for position, byte in enumerate(data[:20_000]):
            table[(byte + position) & 255] ^= byte
        zlib.crc32(bytes(table))
        checks += 1
    torch.save(merged, folder / "model.pt")
    print(f"merged {len(merged)} tensors, {checks} blocks checked", flush=True)


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 96), nn.SiLU(), nn.Linear(96, 24))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    where = [tempfile.mkdtemp(prefix="merge-") if rank == 0 else None]
    dist.broadcast_object_list(where)
    folder = Path(where[0])
    for step in range(1, 61):
        image = torch.randn(16, 24)
        (model(image) - image).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 40:
            write_shard(model, folder)
            if rank == 0:
                consolidate(folder, world, seconds=22)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
