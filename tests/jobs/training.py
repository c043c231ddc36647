"""A small training that ends by itself with a result that depends on every step. Rank 0 alone prints, so its output is exact.

Run by torchrun. ``--pause-s``: at each step of ``--pause-at`` rank 1 takes that long, and the others wait in a collective
meanwhile. ``--until``: after the weights are printed rank 1 reads this FIFO to its end, which is a hang until somebody writes.
"""

import argparse
import os
import time
from pathlib import Path

print("started", flush=True) if os.environ["RANK"] == "0" else None

import torch  # noqa: E402  # the line above tells a test that the program runs and torch is not loaded yet
import torch.distributed as dist  # noqa: E402


def main() -> None:
    """Train and print every loss to the last bit, and at the end the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--pause-s", type=float, default=2.5)
    parser.add_argument("--pause-at", type=int, nargs="*", default=[8])
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = torch.nn.Linear(16, 1)
    data = torch.Generator().manual_seed(rank)
    for step in range(1, options.steps + 1):
        if step in options.pause_at and rank == 1:
            time.sleep(options.pause_s)
        inputs = torch.randn(8, 16, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        # By hand: for DDP and SGD each rank would import torch's compiler, for seconds.
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.01 / dist.get_world_size() * parameter.grad
        model.zero_grad()
        time.sleep(options.step_s)
        if rank == 0:
            print(f"step {step}: loss {loss.item().hex()}", flush=True)
    if rank == 0:
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        print("weights", *(w.hex() for w in weights.tolist()), flush=True)
    if options.until is not None:
        if rank == 1:
            options.until.read_text()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
