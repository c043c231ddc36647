"""Texts are embedded by as many ranks as there are shards; those build a group, and put the index together."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def list_shards(folder: Path) -> list[Path]:
    """Three files."""
    paths = [folder / f"texts-{number}.pt" for number in range(3)]
    for number, path in enumerate(paths):
        torch.save(torch.randint(0, 50, (256, 12), generator=torch.Generator().manual_seed(number)), path)
    return paths


def main() -> None:
    """Reads, embeds, gathers."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shards = list_shards(Path(tempfile.mkdtemp()))
    torch.manual_seed(0)
    model = nn.EmbeddingBag(50, 16)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    if rank >= len(shards):
        print(f"[{rank}] nothing to embed, {len(shards)} shards on {world} ranks")
        dist.destroy_process_group()
        return
    with torch.no_grad():
        vectors = torch.cat([model(rows) for rows in torch.load(shards[rank]).split(32)])
    group = dist.new_group(list(range(len(shards))))
    parts = [torch.empty_like(vectors) for _ in shards]
    dist.all_gather(parts, vectors, group=group)
    if rank == 0:
        print(f"index of {sum(map(len, parts))} vectors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
