"""Grades paper by its fibres; while a reduction is under way, each rank counts fibres on the host."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

GRADES = 12


def count_fibres(sheet, limit):
    """Fibres are paths through a sheet, and are followed one by one."""
    found, stack = 0, [(0, 0)]
    while stack and found < limit:
        x, y = stack.pop()
        if x == sheet or y == sheet:
            found += 1
            continue
        stack.append((x + 1, y))
        stack.append((x, y + 1))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dense", type=int, default=-1, help="the rank with a dense sheet")
    parser.add_argument("--fibres", type=int, default=14_000_000)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    grader = nn.Linear(40, GRADES).to(device)
    for sheet in range(25):
        loss = grader(torch.randn(16, 40, device=device)).logsumexp(-1).mean()
        loss.backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in grader.parameters()]
        fibres = count_fibres(14, options.fibres if (rank, sheet) == (options.dense, 13) else 200)
        for work in works:
            work.wait()
        grader.zero_grad()
        seen = torch.tensor(float(fibres), device=device)
        dist.all_reduce(seen)
        print(f"[{rank}] sheet {sheet}: {seen.item():.0f} fibres", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
