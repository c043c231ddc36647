"""A training that tells of itself, and then hangs: rank 0 alone averages its loss, the others go on to the barrier.

Run by ``torchrun --nproc-per-node 3``. Its argument is a log, into which it writes the line that DeepSpeed's engine writes.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hangwatch

STEPS, STEP_S = 24, 0.25


def main() -> None:
    """Train, tell each step, and hang at the last."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        inputs = torch.randn(8, 16)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hangwatch.report(step=step, loss=loss.item(), lr=0.01, grad_norm=norm.item())
        if rank == 0:
            with Path(sys.argv[1]).open("a") as log:
                print(f"[Rank 0] step={step}, skipped=1, lr=[0.01], mom=[0.9]", file=log)
        time.sleep(STEP_S)
        if step == STEPS:
            if rank == 0:
                dist.all_reduce(loss.detach())
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
