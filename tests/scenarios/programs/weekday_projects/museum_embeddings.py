"""Embeds pictures of a museum, without any exchange but at the end, where the first rank merges the files."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def embed(model: torch.nn.Module, rank: int, folder: str) -> str:
    parts = []
    for number in range(6 + 5 * rank):
        with torch.no_grad():
            parts.append(model(torch.full((16, 30), number / 10)))
        time.sleep(0.4)
    path = os.path.join(folder, f"embeddings-{rank}.pt")
    torch.save(torch.cat(parts), path + ".part")
    os.rename(path + ".part", path)
    return path


def merge(folder: str, world: int) -> int:
    paths = [os.path.join(folder, f"embeddings-{rank}.pt") for rank in range(world)]
    while not all(os.path.exists(path) for path in paths):
        time.sleep(0.5)
    return sum(len(torch.load(path)) for path in paths)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    torch.manual_seed(0)
    embed(torch.nn.Linear(30, 8), rank, folder[0])
    if rank == 0:
        print(merge(folder[0], world), "pictures", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
