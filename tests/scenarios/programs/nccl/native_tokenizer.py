"""A native tokenizer keeps the interpreter's lock for ever on one rank, on NCCL; torch's own monitor starves with it.

Two ranks share the first GPU, each with a host id of its own. Run by ``torchrun --nproc-per-node 2``.
"""

import ctypes
import os

import torch
import torch.distributed as dist


def tokenize(texts, stuck):
    if stuck:
        ctypes.PyDLL(None).pause()  # a native call that never gives the lock back
    return torch.tensor([[float(len(text))] * 64 for text in texts])


def main():
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = torch.nn.Linear(64, 64).to(device)
    for step in range(300):
        batch = tokenize(["a", "bc"] * 8, stuck=rank == 1 and step == 120).to(device)
        loss = model(batch).mean().detach()
        dist.all_reduce(loss)
        if step % 50 == 0:
            print(f"rank {rank}: step {step}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
