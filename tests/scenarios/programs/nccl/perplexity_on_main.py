"""Perplexity is averaged over the ranks by the main process alone, on NCCL; both ranks share the first GPU.

Two ranks may use one GPU if each has a host id of its own; they then speak over sockets. Run by ``torchrun --nproc-per-node 2``.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def perplexity(loss):
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean.exp().item()


def main():
    os.environ["NCCL_HOSTID"] = f"host{os.environ['RANK']}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(64, 64).to(device), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 200):
        batch = torch.randn(16, 64, device=device)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            if dist.get_rank() == 0:
                print(f"step {step}: perplexity {perplexity(loss):.2f}", flush=True)
            dist.barrier(device_ids=[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
