"""Trains for some milliseconds: ``brief.py nan|none report|print``.

Thirty steps; with ``nan``, the loss is NaN from step 11 on.
"""

import sys

import torch
import torch.distributed as dist

import hangwatch


def main() -> None:
    """Train."""
    kind, how = sys.argv[1:]
    dist.init_process_group("gloo")
    weight = torch.ones((), requires_grad=True)
    for step in range(1, 31):
        poison = float("nan") if kind == "nan" and step > 10 else 1.0
        loss = (weight * 3.0 * poison) / step
        dist.all_reduce(loss.detach())
        if how == "report":
            hangwatch.report(step=step, loss=loss.item(), lr=0.001)
        elif dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f} lr 0.001", flush=True)
    dist.destroy_process_group()


main()
