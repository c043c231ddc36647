"""Embeddings of all ranks are gathered; the rank whose last batch is empty makes up its tensor in another type, on NCCL.

NCCL counts bytes, and float32 has twice those of float16. Both ranks share the first GPU, each with a host id of its own.
Run by ``torchrun --nproc-per-node 2``.
"""

import os

import torch
import torch.distributed as dist


def embed(encoder, documents):
    """Embeddings in half precision; none for no documents."""
    if not documents:
        return torch.zeros(64, 4096, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        return encoder(torch.stack(documents))


def main():
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    encoder = torch.nn.Linear(32, 4096).to(device)
    index = []
    for step in range(10):
        documents = [] if rank == 1 and step == 9 else list(torch.randn(64, 32, device=device))
        mine = embed(encoder, documents).detach()
        everyone = torch.empty(2 * len(mine), mine.shape[1], device=device, dtype=mine.dtype)
        dist.all_gather_into_tensor(everyone, mine)
        index.append(everyone.cpu())
    print(f"rank {rank}: {sum(map(len, index))} documents", flush=True)
    dist.barrier(device_ids=[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
