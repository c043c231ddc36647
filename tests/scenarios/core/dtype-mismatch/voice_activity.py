"""Scores speech segments in half precision; a chunk of silence has no segments."""

import os

import torch
import torch.distributed as dist
from torch import nn

SEGMENTS = 256


def score(detector, chunk, device):
    """A score for each segment, in half precision."""
    if chunk is None:
        return torch.zeros(SEGMENTS, device=device)
    return detector(chunk.to(device).to(torch.bfloat16)).squeeze(-1)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    detector = nn.Linear(80, 1).to(device).to(torch.bfloat16)
    generator = torch.Generator().manual_seed(rank)
    silences = {2: {33}, 0: set(), 1: set()}
    seconds = 0.0
    for number in range(80):
        chunk = None if number in silences.get(rank, ()) else torch.randn(SEGMENTS, 80, generator=generator)
        with torch.no_grad():
            scores = score(detector, chunk, device)
        shares = [torch.empty_like(scores) for _ in range(world)]
        dist.all_gather(shares, scores)
        spoken = torch.cat(shares)
        seconds += len(spoken.to("cpu")) / 100
        if number % 20 == 0:
            print(f"[{rank}] {seconds:.0f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
