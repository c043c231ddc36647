"""Learns spelling rules; words are checked against expressions that users wrote."""

import os
import re

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORD = re.compile(r"^([a-z]+[-']?)+$")


def is_word(rank, step):
    word = "donaudampfschifffahrtsgesellschaftskapitaen" + ("!" if (rank, step) == (0, 50) else "")
    return WORD.match(word) is not None


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(32, 32).cuda(), device_ids=[local])
    for step in range(90):
        known = is_word(rank, step)
        out = model(torch.full((4, 32), float(known)).cuda())
        out.square().mean().backward()
        model.zero_grad(set_to_none=True)
        print(f"[{rank}] {step}: {out.detach().float().cpu().shape}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
