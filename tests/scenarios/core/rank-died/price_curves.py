"""Fits price curves; gradients are averaged by hand, a bucket at a time."""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

POINTS = 1 << 12


def average(parameters):
    works = [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in parameters]
    for work in works:
        work.wait()


def curves(rank, step, trouble):
    """The quotes of a day; what can go wrong on the way is what did go wrong."""
    if rank == 1 and step == 45:
        if trouble == "memory":
            os.kill(os.getpid(), signal.SIGKILL)
        elif trouble == "terminal":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif trouble == "holiday":
            return None
        elif trouble == "throttled":
            time.sleep(3600)
    return torch.randn(8, POINTS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trouble", choices=["memory", "terminal", "holiday", "throttled"])
    options = parser.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = nn.Sequential(nn.Linear(POINTS, 32), nn.Tanh(), nn.Linear(32, POINTS)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        quotes = curves(rank, step, options.trouble)
        if quotes is None:
            return
        quotes = quotes.pin_memory().cuda(non_blocking=True)
        (model(quotes) - quotes).square().mean().backward()
        average(list(model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().synchronize()
        if step % 20 == 0:
            print(f"[{rank}] day {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
