"""Embeddings of all ranks are gathered without being padded: the last batch of one rank is shorter, on NCCL.

NCCL does not compare sizes: it waits, or copies what is not there. Both ranks share the first GPU, each with a host id of its
own. Run by ``torchrun --nproc-per-node 2``.
"""

import os

import torch
import torch.distributed as dist


def main():
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    encoder = torch.nn.Linear(32, 4096).to(device)
    documents = torch.randn(640 if rank == 0 else 609, 32, device=device)
    index = []
    for batch in documents.split(64):
        mine = encoder(batch)
        everyone = torch.empty(2 * len(mine), mine.shape[1], device=device)
        dist.all_gather_into_tensor(everyone, mine.detach())
        index.append(everyone.cpu())
    print(f"rank {rank}: {sum(map(len, index))} documents", flush=True)
    dist.barrier(device_ids=[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
