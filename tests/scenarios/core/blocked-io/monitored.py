"""``monitored_barrier`` before every evaluation, to see who is late. What keeps a rank from it is chosen by ``--keep-by``."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def read_answers(path: Path) -> str:
    """The reference answers, which a generator writes to a pipe."""
    return path.read_text()


def evaluate(model: nn.Module, samples: torch.Tensor) -> torch.Tensor | None:
    """The loss over this rank's samples; the barrier comes first."""
    if len(samples) == 0:
        return None
    dist.monitored_barrier()
    with torch.no_grad():
        return model(samples).square().mean()


def main() -> None:
    """Train and evaluate by turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep-by", choices=("pipe", "nothing-to-do"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    answers = Path(tempfile.mkdtemp()) / "answers"
    os.mkfifo(answers)
    model = nn.Linear(4, 1)
    for step in range(1, 61):
        model.zero_grad()
        model(torch.randn(4, 4)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step % 15 == 0:
            last = step == 30 and rank == 2
            if last and options.keep_by == "pipe":
                read_answers(answers)
            samples = torch.randn(0 if last and options.keep_by == "nothing-to-do" else 8, 4)
            evaluate(model, samples)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
