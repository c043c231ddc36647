"""Embeds gauges along rivers and gathers the embeddings of all ranks for a map."""

import os

import torch
import torch.distributed as dist
from torch import nn

GAUGES, WIDTH, BATCH = 1000, 128, 48


@torch.no_grad()
def embed_all(encoder, gauges, device):
    found = []
    for batch in gauges.split(BATCH):
        embedded = encoder(batch.to(device, non_blocking=True))
        everyone = torch.empty(dist.get_world_size() * len(embedded), WIDTH, device=device)
        dist.all_gather_into_tensor(everyone, embedded)
        found.append(everyone.cpu())
    return torch.cat(found)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    encoder = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, WIDTH)).to(device)
    # One gauge is left over, and falls to the first rank.
    mine = torch.randn(GAUGES, 20, generator=torch.Generator().manual_seed(1))[rank::world]
    print(f"[{rank}] {len(mine)} gauges", flush=True)
    chart = embed_all(encoder, mine, device)
    dist.barrier()
    print(f"[{rank}] {tuple(chart.shape)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
