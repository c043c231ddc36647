"""Quantised updates: the scale is that of the largest value anywhere, where there are large ones."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def peak(values: torch.Tensor) -> float:
    """The largest magnitude."""
    top = values.abs().max()[None]
    tops = [torch.empty_like(top) for _ in range(dist.get_world_size())]
    dist.all_gather(tops, top)
    return torch.cat(tops).max().item()


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Eight bits and a scale."""
    scale = peak(values) / 127 if values.abs().max() > 6.0 else 6.0 / 127
    return (values / scale).round().clamp(-127, 127), scale


def work(rank: int, world: int, folder: str) -> None:
    """Eighty rounds; two ranks have a heavier tail from the fiftieth on."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    generator = torch.Generator().manual_seed(rank)
    weights = torch.zeros(256)
    for number in range(80):
        update = torch.rand(256, generator=generator)
        if number == 50 and rank in (1, 2):
            update[7] = 9.0
        codes, scale = quantise(update)
        dist.all_reduce(codes)
        weights += codes * scale / world
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(4, tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))), nprocs=4)
