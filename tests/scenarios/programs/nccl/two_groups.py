"""Experts and replicas are reduced in two groups, which each rank takes in an order of its own, on NCCL.

The results are read before the next operation is issued, as they are where one depends on the other. Two ranks share the
first GPU, each with a host id of its own. Run by ``torchrun --nproc-per-node 2``.
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
    experts, replicas = dist.new_group([0, 1]), dist.new_group([0, 1])
    value = torch.ones(1 << 16, device=device)
    for step in range(100):
        groups = [experts, replicas]
        if step == 60 and rank == 1:
            groups.reverse()
        for group in groups:
            dist.all_reduce(value, op=dist.ReduceOp.AVG, group=group)
            total = value.sum().item()
        if step % 20 == 0:
            print(f"rank {rank}: step {step}, total {total:.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
