"""Removes near duplicates from a corpus on the first rank, then all ranks learn embeddings of what is left."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def sentences(count: int) -> list[set[int]]:
    return [{(number * place * 31) % 977 for place in range(3, 43)} for number in range(count)]


def similar(left: set[int], right: set[int], threshold: float) -> bool:
    return len(left & right) / len(left | right) > threshold


def deduplicate(rows: list[set[int]], threshold: float = 0.8) -> list[int]:
    kept: list[int] = []
    for number, row in enumerate(rows):
        if not any(similar(row, rows[other], threshold) for other in kept):
            kept.append(number)
    return kept


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    kept: list[list[int] | None] = [None]
    if rank == 0:
        kept[0] = deduplicate([row | {1000 + copy} for copy in range(10) for row in sentences(977)])
    dist.barrier()
    dist.broadcast_object_list(kept)
    mine = kept[0][rank :: dist.get_world_size()]
    model = DistributedDataParallel(torch.nn.EmbeddingBag(2000, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows = sentences(977)
    for number in mine[:100]:
        loss = model(torch.tensor([sorted(rows[number % 977])])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
