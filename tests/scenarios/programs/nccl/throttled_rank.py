"""A rank is stopped by a signal in the middle of training, on NCCL: the other spins for its GPU.

Two ranks share the first GPU, each with a host id of its own. Run by ``torchrun --nproc-per-node 2``.
"""

import os
import signal

import torch
import torch.distributed as dist


def main():
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    gradient = torch.ones(1 << 20, device=device)
    for step in range(400):
        if rank == 1 and step == 100:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        if step % 50 == 0:
            print(f"rank {rank}: step {step}, norm {gradient.norm().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
